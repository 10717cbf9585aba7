/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfer on a stream, inside one process: two engines, one of which moves what the other has registered.
 *
 *     ./06_transfer_streams
 */
#include <smem/host/smem.h>
#include <smem/host/smem_trans.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 32, PIECE = 8192 };

static void must(int good, const char* what) {
    if (!good) {
        fprintf(stderr, "%s: %s\n", what, smem_get_last_err_msg());
        exit(1);
    }
}

int main(int argc, char** argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s <ip:port of the target>\n", argv[0]);
        return 2;
    }
    smem_trans_config_t config;
    must(smem_set_log_level(5) == 0, "log level");
    must(smem_trans_config_init(&config) == 0, "config");
    must(smem_trans_init(&config) == 0, "trans_init");
    smem_trans_t target = smem_trans_create(NULL, argv[1], &config);
    smem_trans_t source = smem_trans_create(NULL, "127.0.0.1:0", &config);
    must(target != NULL && source != NULL, "create");
    char* there = (char*)smem_trans_malloc(target, (size_t)PIECES * PIECE);
    must(there != NULL, "malloc");

    static char buffers[PIECES][PIECE];
    const void* sources[PIECES];
    void* targets[PIECES];
    size_t sizes[PIECES];
    for (int i = 0; i < PIECES; ++i) {
        memset(buffers[i], i + 1, PIECE);
        sources[i] = buffers[i];
        targets[i] = there + (PIECES - 1 - i) * PIECE;
        sizes[i] = PIECE;
    }
    void* stream = NULL;
    must(smem_stream_create(&stream) == 0, "stream");
    must(smem_trans_batch_write_submit(source, sources, argv[1], targets, sizes, PIECES, stream, 0) == 0, "submit");
    must(smem_trans_write_submit(source, buffers[7], argv[1], there, PIECE, stream, 0) == 0, "submit one");
    must(smem_stream_wait(stream) == 0, "wait");
    must(there[0] == 8 && there[PIECE] == PIECES - 1, "in this order");
    must(smem_stream_destroy(stream) == 0, "end of the stream");
    must(smem_trans_free(target, there) == 0, "free");
    must(smem_trans_write(source, buffers[0], argv[1], there, PIECE, 0) == SMEM_INVALID_PARAM, "free is free");
    printf("%d pieces on a stream\n", (int)PIECES);
    smem_trans_destroy(source, 0);
    smem_trans_destroy(target, 0);
    smem_trans_uninit(0);
    return 0;
}
