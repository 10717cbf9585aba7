/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfer on a stream: the source queues pieces and goes on, and waits when it needs them to be there. The target's
 * memory is of the kind that others of its host map.
 *
 *     ./06_transfer_streams target 127.0.0.1:5001                       prints: 127.0.0.1:5001 <address>
 *     ./06_transfer_streams source 127.0.0.1:5001 <address> 127.0.0.1   the last is our own address
 */
#include <smem/host/smem.h>
#include <smem/host/smem_trans.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 32, PIECE = 8192 };
static char buffers[PIECES][PIECE];
static char again[PIECES][PIECE];

static void must(int good, const char* what) {
    if (!good) {
        fprintf(stderr, "%s: %s\n", what, smem_get_last_err_msg());
        exit(1);
    }
}

static void serve(smem_trans_t engine, const char* session) {
    char* memory = (char*)smem_trans_malloc(engine, sizeof buffers);
    must(memory != NULL, "malloc");
    printf("%s %p\n", session, (void*)memory);
    fflush(stdout);
    (void)getchar(); /* until standard input ends */
    printf("the pieces begin with %d and end with %d\n", memory[0], memory[sizeof buffers - 1]);
    must(smem_trans_free(engine, memory) == 0, "free");
}

static void use(smem_trans_t engine, const char* session, char* there) {
    const void* sources[PIECES];
    void* targets[PIECES];
    const void* written[PIECES];
    void* places[PIECES];
    size_t sizes[PIECES];
    for (int i = 0; i < PIECES; ++i) {
        memset(buffers[i], i + 1, PIECE);
        sources[i] = buffers[i];
        written[i] = targets[i] = there + (PIECES - 1 - i) * PIECE; /* the last one first */
        places[i] = again[i];
        sizes[i] = PIECE;
    }
    void* stream = NULL;
    must(smem_stream_create(&stream) == 0, "stream");
    must(smem_trans_batch_write_submit(engine, sources, session, targets, sizes, PIECES, stream, 0) == 0, "pieces");
    must(smem_trans_write_submit(engine, buffers[7], session, there, PIECE, stream, 0) == 0, "one more");
    must(smem_trans_batch_read_submit(engine, places, session, written, sizes, PIECES, stream, 0) == 0, "all of them");
    must(smem_stream_wait(stream) == 0, "wait");
    must(again[PIECES - 1][0] == 8, "one more came after the pieces");
    must(memcmp(buffers, again, sizeof buffers - PIECE) == 0, "the others are as they were");
    must(smem_stream_destroy(stream) == 0, "end of the stream");
    printf("%d pieces on a stream\n", (int)PIECES);
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
