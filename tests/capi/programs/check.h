/* SPDX-License-Identifier: Apache-2.0 */
/* What the test programs check with: the first thing that is wrong ends the program and is named. */
#ifndef MEMFABRIC_TESTS_CHECK_H
#define MEMFABRIC_TESTS_CHECK_H

#include <smem/host/smem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(what)                                                                                                \
    do {                                                                                                           \
        if (!(what)) {                                                                                             \
            fprintf(stderr, "%s:%d: %s; last error: %d %s\n", __FILE__, __LINE__, #what, smem_get_last_err_code(), \
                    smem_get_last_err_msg());                                                                      \
            exit(1);                                                                                               \
        }                                                                                                          \
    } while (0)

/* It fails with this code, which is also the last one, and says these words. */
#define CHECK_FAILS(call, code, words)                           \
    do {                                                         \
        (void)smem_get_and_clear_last_err_msg();                 \
        CHECK((call) == (code));                                 \
        CHECK(smem_get_last_err_code() == (code));               \
        CHECK(strstr(smem_get_last_err_msg(), (words)) != NULL); \
    } while (0)

/* The same for calls that answer with something else than a code. */
#define CHECK_REFUSED(call, answer, code, words)                 \
    do {                                                         \
        (void)smem_get_and_clear_last_err_msg();                 \
        CHECK((call) == (answer));                               \
        CHECK(smem_get_last_err_code() == (code));               \
        CHECK(strstr(smem_get_last_err_msg(), (words)) != NULL); \
    } while (0)

static inline void wait_a_little(void) {
    const struct timespec millisecond = {0, 1000000};
    nanosleep(&millisecond, NULL);
}

/* Until it holds, or 20 seconds are over. */
#define CHECK_SOON(what)                                                        \
    do {                                                                        \
        for (int looks = 0; looks < 20000 && !(what); ++looks) wait_a_little(); \
        CHECK(what);                                                            \
    } while (0)

#endif
