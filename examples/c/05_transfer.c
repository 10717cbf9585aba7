/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfer: the target registers memory and prints where it is; the source writes there and reads it back, while the
 * target does nothing for it.
 *
 *     ./05_transfer target 127.0.0.1:5001                       prints: 127.0.0.1:5001 <address>
 *     ./05_transfer source 127.0.0.1:5001 <address> 127.0.0.1   the last is our own address
 */
#include <smem/host/smem.h>
#include <smem/host/smem_trans.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 1 << 20 };
static char buffer[SIZE];
static char again[SIZE];

static void must(int good, const char* what) {
    if (!good) {
        fprintf(stderr, "%s: %s\n", what, smem_get_last_err_msg());
        exit(1);
    }
}

static void serve(smem_trans_t engine, const char* session) {
    must(smem_trans_register_mem(engine, buffer, SIZE, 0) == 0, "register");
    printf("%s %p\n", session, (void*)buffer);
    fflush(stdout);
    (void)getchar(); /* until standard input ends */
    must(smem_trans_deregister_mem(engine, buffer) == 0, "deregister");
    printf("the first byte is %d, the last one %d\n", buffer[0], buffer[SIZE - 1]);
}

static void use(smem_trans_t engine, const char* session, char* address) {
    for (int i = 0; i < SIZE; ++i) buffer[i] = (char)(i * 7 + i / 4096 + 5);
    must(smem_trans_write(engine, buffer, session, address, SIZE) == 0, "write");
    must(smem_trans_read(engine, again, session, address, SIZE) == 0, "read");
    must(memcmp(buffer, again, SIZE) == 0, "the same bytes");

    const void* sources[2] = {buffer, buffer + 4096};
    void* targets[2] = {address + 4096, address};
    const void* there[2] = {address, address + 4096};
    void* here[2] = {again + 4096, again};
    size_t sizes[2] = {4096, 4096};
    must(smem_trans_batch_write(engine, sources, session, targets, sizes, 2) == 0, "batch write");
    must(smem_trans_batch_read(engine, here, session, there, sizes, 2) == 0, "batch read");
    must(memcmp(buffer, again, SIZE) == 0, "swapped twice");
    printf("wrote and read %d bytes\n", (int)SIZE);
}

int main(int argc, char** argv) {
    const int is_target = argc == 3 && strcmp(argv[1], "target") == 0;
    if (!is_target && !(argc == 5 && strcmp(argv[1], "source") == 0)) {
        fprintf(stderr, "usage: %s target <ip:port> | source <ip:port of the target> <address> <ip>\n", argv[0]);
        return 2;
    }
    smem_trans_config_t config;
    must(smem_set_log_level(5) == 0, "log level");
    must(smem_trans_config_init(&config) == 0, "config");
    if (is_target) config.role = SMEM_TRANS_RECEIVER;
    must(smem_trans_init(&config) == 0, "trans_init");
    smem_trans_t engine = smem_trans_create(NULL, is_target ? argv[2] : argv[4], &config);
    must(engine != NULL, "create");
    if (is_target) {
        serve(engine, argv[2]);
    } else {
        use(engine, argv[2], (char*)strtoull(argv[3], NULL, 16));
    }
    smem_trans_destroy(engine, 0);
    smem_trans_uninit(0);
    return 0;
}
