/* SPDX-License-Identifier: Apache-2.0 */
/* A library of a Python program that uses the C interface by itself, in ways that Python does not see. */
#include <smem/host/smem_bm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { CHILD_ENDS_S = 20 };
static smem_bm_t kept;

/* A child of plain fork, while another thread may have the interpreter's lock. 0: its calls are refused as they should.
 */
int fork_and_call(void) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(CHILD_ENDS_S);
        _exit(smem_bm_get_rank_id() == SMEM_NO_RANK && smem_get_last_err_code() == SMEM_NOT_INIT ? 0 : 1);
    }
    int status = -1;
    return waitpid(child, &status, 0) == child ? status : -1;
}

void keep(smem_bm_t pool) { kept = pool; }

/* As the destructor of a static object in C++: the interpreter has ended by then. */
__attribute__((destructor)) static void end(void) {
    char byte = 0;
    if (kept == NULL) return;
    CHECK_FAILS(smem_bm_copy(kept, &byte, &byte, 1, SMEMB_COPY_H2G, 0), SMEM_INVALID_PARAM, "");
    CHECK_FAILS(smem_bm_join(kept, 0), SMEM_NOT_INIT, "the interpreter of this process has ended");
    smem_bm_destroy(kept);
    smem_uninit();
    if (fork() == 0) _exit(0);
    CHECK(wait(NULL) > 0);
    puts("good");
}
