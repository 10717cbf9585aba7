/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that is linked with nothing and loads the library into a scope of its own, more than once. Arguments: the
 * library, and the store's URL.
 */
#include <dlfcn.h>
#include <smem/host/smem_bm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(what)                                            \
    do {                                                      \
        if (!(what)) {                                        \
            fprintf(stderr, "%s: %s\n", #what, last_error()); \
            exit(1);                                          \
        }                                                     \
    } while (0)

static const char* no_error(void) { return "the library is not loaded"; }
static const char* (*last_error)(void) = no_error;

static void* function(void* library, const char* name) {
    void* found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return found;
}

static void use(const char* path, const char* url, uint32_t id) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fprintf(stderr, "%s\n", dlerror());
    MUST(library != NULL);
    int32_t (*config_init)(smem_bm_config_t*);
    int32_t (*init)(const char*, uint32_t, uint16_t, const smem_bm_config_t*);
    smem_bm_t (*create)(uint32_t, uint32_t, smem_bm_data_op_type, uint64_t, uint64_t, uint32_t);
    int32_t (*join)(smem_bm_t, uint32_t);
    void* (*ptr)(smem_bm_t, uint16_t);
    int32_t (*copy)(smem_bm_t, smem_copy_params*, smem_bm_copy_type, uint32_t);
    void (*destroy)(smem_bm_t);
    *(void**)&last_error = function(library, "smem_get_last_err_msg");
    *(void**)&config_init = function(library, "smem_bm_config_init");
    *(void**)&init = function(library, "smem_bm_init");
    *(void**)&create = function(library, "smem_bm_create");
    *(void**)&join = function(library, "smem_bm_join");
    *(void**)&ptr = function(library, "smem_bm_ptr");
    *(void**)&copy = function(library, "smem_bm_copy");
    *(void**)&destroy = function(library, "smem_bm_destroy");

    smem_bm_config_t config;
    MUST(config_init(&config) == 0);
    MUST(init(url, 1, 0, &config) == 0);
    smem_bm_t pool = create(id, 1, SMEMB_DATA_OP_SDMA, 2u << 20, 0, 0);
    MUST(pool != NULL && join(pool, 0) == 0);
    char* own = (char*)ptr(pool, 0);
    smem_copy_params params = {"hello", own, 6, NULL};
    MUST(copy(pool, &params, SMEMB_COPY_H2G, 0) == 0 && strcmp(own, "hello") == 0);
    destroy(pool);
    MUST(dlclose(library) == 0);
}

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    for (uint32_t id = 0; id < 3; ++id) use(argv[1], argv[2], id);
    puts("good");
    return 0;
}
