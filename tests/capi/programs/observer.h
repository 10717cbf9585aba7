/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that is loaded between a program and libmf_smem.so (LD_PRELOAD): support.c_observer generates a function of
 * it for each of the interface's. It notes each call of the program, and can make one function lie.
 *
 *     OBSERVER_NOTES      where calls are noted: "<function> <1 if it succeeded> <who called> <who called that one>"
 *     OBSERVER_LIAR       the function that lies: one that gives codes says 0, and one that gives nothing returns, and
 *                         neither does anything; one that gives a value gives another one. What fails, fails.
 *     OBSERVER_TRUTHS     1 or 0 for each call of it in an honest run, to know what fails
 */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <smem/host/smem.h>
#include <smem/host/smem_bm.h>
#include <smem/host/smem_shm.h>
#include <smem/host/smem_trans.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_CALLS = 65536 };
static struct {
    uintptr_t start, end; /* of the program's code */
    int notes;
    pid_t process; /* children are not watched */
    const char* liar;
    char truths[MOST_CALLS];
    size_t truth_count;
} observer;

static int find_program(struct dl_phdr_info* info, size_t size, void* unused) {
    (void)size, (void)unused;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)* part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0) {
            observer.start = info->dlpi_addr;
            observer.end = info->dlpi_addr + part->p_vaddr + part->p_memsz;
        }
    }
    return 1; /* the first one is the program */
}

__attribute__((constructor)) static void begin(void) {
    dl_iterate_phdr(find_program, NULL);
    observer.process = getpid();
    observer.notes = open(getenv("OBSERVER_NOTES"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (observer.notes < 0) abort();
    observer.liar = getenv("OBSERVER_LIAR");
    if (observer.liar == NULL) return;
    FILE* const truths = fopen(getenv("OBSERVER_TRUTHS"), "r");
    if (truths == NULL) abort();
    observer.truth_count = fread(observer.truths, 1, MOST_CALLS, truths);
    if (observer.truth_count == MOST_CALLS) abort();
    fclose(truths);
}

static int is_program(const void* place) {
    return (uintptr_t)place >= observer.start && (uintptr_t)place < observer.end;
}

static int is_watched(const void* caller) { return is_program(caller) && getpid() == observer.process; }

static int is_liar(const char* function) { return observer.liar != NULL && strcmp(observer.liar, function) == 0; }

/* Whether that call of the liar succeeded, when it did not lie. */
static int succeeds(unsigned call) { return call < observer.truth_count && observer.truths[call] == '1'; }

static void note(const char* function, int good, const void* caller, const void* before) {
    dprintf(observer.notes, "%s %d %lx %lx\n", function, good, (unsigned long)((uintptr_t)caller - observer.start),
            is_program(before) ? (unsigned long)((uintptr_t)before - observer.start) : 0);
}

#define CALLER __builtin_return_address(0)
#define CALLER_OF_CALLER __builtin_return_address(1)
#define REAL(name) (*(__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

/* In parentheses a name is the function, not the macro of the header. */
#define OBSERVE_CODE(name, parameters, arguments)                                           \
    int32_t(name) parameters {                                                              \
        static unsigned calls;                                                              \
        if (!is_watched(CALLER)) return REAL(name) arguments;                               \
        const unsigned call = __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);              \
        const int32_t result = is_liar(#name) && succeeds(call) ? 0 : REAL(name) arguments; \
        note(#name, result == 0, CALLER, CALLER_OF_CALLER);                                 \
        return result;                                                                      \
    }

#define OBSERVE_NOTHING(name, parameters, arguments)                      \
    void(name) parameters {                                               \
        if (!is_watched(CALLER) || !is_liar(#name)) REAL(name) arguments; \
        if (is_watched(CALLER)) note(#name, 1, CALLER, CALLER_OF_CALLER); \
    }

/* `good` and `lie` may use `result`. */
#define OBSERVE_VALUE(type, name, parameters, arguments, good, lie) \
    type(name) parameters {                                         \
        type result = REAL(name) arguments;                         \
        if (!is_watched(CALLER)) return result;                     \
        note(#name, (good), CALLER, CALLER_OF_CALLER);              \
        return is_liar(#name) && (good) ? (lie) : result;           \
    }
#define OBSERVE_RANK(type, name, parameters, arguments) \
    OBSERVE_VALUE(type, name, parameters, arguments, result != UINT32_MAX, result + 1)
#define OBSERVE_NUMBER(type, name, parameters, arguments) \
    OBSERVE_VALUE(type, name, parameters, arguments, result != 0, result + 1)
#define OBSERVE_ADDRESS(type, name, parameters, arguments) \
    OBSERVE_VALUE(type, name, parameters, arguments, result != NULL, (void*)((char*)result + 64))
#define OBSERVE_TEXT(type, name, parameters, arguments) \
    OBSERVE_VALUE(type, name, parameters, arguments, result[0] != '\0', "something else")
