/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses a pool, then asks the interpreter that came with it who it is, one answer in a line: its prefix, that of the
 * interpreter it was made with, the package, and the file of the interpreter's library. Argument: the store's URL.
 */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <smem/host/smem_bm.h>

#include "check.h"

static void* function(const char* name) {
    void* found = dlsym(RTLD_DEFAULT, name);
    CHECK(found != NULL);
    return found;
}

static void ask(const char* question) {
    int (*ensure)(void);
    void (*release)(int);
    int (*run)(const char*, void*);
    *(void**)&ensure = function("PyGILState_Ensure");
    *(void**)&release = function("PyGILState_Release");
    *(void**)&run = function("PyRun_SimpleStringFlags");
    const int state = ensure();
    CHECK(run(question, NULL) == 0);
    release(state);
}

int main(int argc, char** argv) {
    CHECK(argc == 2);
    smem_bm_config_t config;
    CHECK(smem_bm_config_init(&config) == 0 && smem_bm_init(argv[1], 1, 0, &config) == 0);
    smem_bm_t pool = smem_bm_create(0, 1, SMEMB_DATA_OP_SDMA, 1u << 20, 0, 0);
    CHECK(pool != NULL && smem_bm_join(pool, 0) == 0);
    char* own = (char*)smem_bm_ptr(pool, 0);
    CHECK(smem_bm_copy(pool, "hello", own, 6, SMEMB_COPY_H2G, 0) == 0 && strcmp(own, "hello") == 0);
    ask("import sys, memfabric_hybrid\n"
        "print(sys.prefix, sys.base_prefix, memfabric_hybrid.__path__[0], sep='\\n', flush=True)\n");
    Dl_info library;
    CHECK(dladdr(function("Py_InitializeFromConfig"), &library) != 0);
    puts(library.dli_fname);
    smem_bm_uninit(0);
    return 0;
}
