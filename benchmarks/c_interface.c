/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of the C interface beside memcpy, in turn, on the same addresses: 4 KiB by 4 KiB, and one block of a KV cache
 * in a batch. c_interface.py compiles and runs two of it.
 *
 *     c_interface <store URL> target               joins, says "ready", and stays until its standard input ends
 *     c_interface <store URL> source <rounds>      prints "<shape> <what> <nanoseconds>" for each: the best round's
 * median
 */
#include <smem/host/smem.h>
#include <smem/host/smem_bm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KIB 1024ull
#define REGION (256ull * 1024 * KIB)
enum { SAMPLES = 31, SMALL_CALLS = 4000, BATCH_CALLS = 8, LAYERS = 61, PIECES = 2 * LAYERS, LAYOUTS = 4 };

static smem_bm_t pool;
static char* source;
static char* target;
static void* sources[LAYOUTS][PIECES];
static void* targets[LAYOUTS][PIECES];
static uint64_t sizes[PIECES];

static void must(int good, const char* what) {
    if (!good) {
        fprintf(stderr, "%s: %s\n", what, smem_get_last_err_msg());
        exit(1);
    }
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void* a, const void* b) {
    const double first = *(const double*)a;
    const double second = *(const double*)b;
    return (first > second) - (first < second);
}

/* Of one call, from many of one sample. */
static double median_ns(void (*run)(int), int calls) {
    double samples[SAMPLES];
    for (int i = 0; i < SAMPLES; ++i) {
        const double began = now_ns();
        for (int call = 0; call < calls; ++call) run(call);
        samples[i] = (now_ns() - began) / calls;
    }
    qsort(samples, SAMPLES, sizeof samples[0], compare);
    return samples[SAMPLES / 2];
}

/* By a pointer that the compiler cannot see through, as a program calls it that does not know the size. */
static void* (*volatile plain_copy)(void*, const void*, size_t) = memcpy;

static void small_memcpy(int call) {
    (void)call;
    plain_copy(target, source, 4 * KIB);
}

static void small_copy(int call) {
    (void)call;
    smem_copy_params params = {source, target, 4 * KIB, NULL};
    must(smem_bm_copy(pool, &params, SMEMB_COPY_H2G, 0) == 0, "copy");
}

static void batch_memcpy(int call) {
    for (int i = 0; i < PIECES; ++i) plain_copy(targets[call % LAYOUTS][i], sources[call % LAYOUTS][i], sizes[i]);
}

static void batch_copy(int call) {
    smem_batch_copy_params params = {sources[call % LAYOUTS], targets[call % LAYOUTS], sizes, PIECES, NULL};
    must(smem_bm_copy_batch(pool, &params, SMEMB_COPY_H2G, 0) == 0, "batch");
}

/* Each layout has its pieces elsewhere: no copy finds its bytes in the caches. */
static void scatter(void) {
    srand(7);
    for (int i = 0; i < PIECES; ++i) sizes[i] = i % 2 == 0 ? 128 * KIB : 16 * KIB;
    for (int layout = 0; layout < LAYOUTS; ++layout) {
        for (int i = 0; i < PIECES; ++i) {
            const uint64_t places = REGION / (128 * KIB);
            const uint64_t from = ((uint64_t)rand() % (places / PIECES) + (uint64_t)i * (places / PIECES)) * 128 * KIB;
            const uint64_t to = ((uint64_t)rand() % (places / PIECES) + (uint64_t)i * (places / PIECES)) * 128 * KIB;
            sources[layout][i] = source + from;
            targets[layout][i] = target + to;
        }
    }
}

static void measure(const char* shape, void (*plain)(int), void (*ours)(int), int calls, int rounds) {
    double best_plain = 1e18;
    double best_ours = 1e18;
    for (int round = 0; round < rounds; ++round) {
        const double plain_ns = median_ns(plain, calls);
        const double ours_ns = median_ns(ours, calls);
        if (plain_ns < best_plain) best_plain = plain_ns;
        if (ours_ns < best_ours) best_ours = ours_ns;
    }
    printf("%s memcpy %.1f\n%s smem %.1f\n", shape, best_plain, shape, best_ours);
}

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    smem_bm_config_t config;
    must(smem_bm_config_init(&config) == 0, "config");
    must(smem_bm_init(argv[1], 2, 0, &config) == 0, "init");
    pool = smem_bm_create(0, 2, SMEMB_DATA_OP_SDMA, REGION, 0, 0);
    must(pool != NULL && smem_bm_join(pool, 0) == 0, "pool");
    const uint32_t rank = smem_bm_get_rank_id();
    if (strcmp(argv[2], "target") == 0) {
        memset(smem_bm_ptr(pool, (uint16_t)rank), 2, REGION);
        puts("ready");
        fflush(stdout);
        (void)getchar();
        return 0;
    }
    source = (char*)aligned_alloc(4096, REGION);
    memset(source, 1, REGION);
    target = (char*)smem_bm_ptr(pool, (uint16_t)(1 - rank));
    scatter();
    const int rounds = argc > 3 ? atoi(argv[3]) : 7;
    measure("4KiB", small_memcpy, small_copy, SMALL_CALLS, rounds);
    measure("kv122", batch_memcpy, batch_copy, BATCH_CALLS, rounds);
    return 0;
}
