/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types and codes that all of the C interface uses. C11 or C++17, 64-bit Linux.
 *
 * Conventions of every function:
 *
 *   - int32_t results are 0 or one of the codes below. Pointers are NULL, sizes 0 and ranks UINT32_MAX on failure.
 *   - After a failure smem_get_last_err_msg() has a sentence that says what was wrong and what to do; the log has it
 * too.
 *   - NULL for something that is needed: SMEM_INVALID_PARAM. A module that is not initialised: SMEM_NOT_INIT. A handle
 *     that was destroyed, or never was one: SMEM_INVALID_PARAM.
 *   - Any thread may call anything at any time, also from inside a callback.
 *   - A callback that is exchanged or taken back (NULL), or whose object is destroyed, neither runs nor is called any
 *     more when that call returns, so what it works with may go; except that it may be what makes this call. If it has
 *     not returned after a second, the call gives SMEM_TIMEOUT, and the log a line. (A logger is waited for longer.)
 *   - `flags` are reserved where nothing is said about them: pass 0.
 */
#ifndef MEMFABRIC_SMEM_DEF_H
#define MEMFABRIC_SMEM_DEF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define SMEM_STATIC_ASSERT(what, sentence) static_assert(what, sentence)
#else
#define SMEM_STATIC_ASSERT(what, sentence) _Static_assert(what, sentence)
#endif

/* Programs and library agree on every struct, whichever compiler each of them had. */
#define SMEM_PIN_SIZE(type, size) SMEM_STATIC_ASSERT(sizeof(type) == size, #type " is part of the binary interface")
#define SMEM_PIN_FIELD(type, field, offset) \
    SMEM_STATIC_ASSERT(offsetof(type, field) == offset, #type "." #field " is part of the binary interface")

/* Major and minor version of this interface, as smem_get_abi_version() answers. */
#define SMEM_ABI_VERSION 0x00010003u

/* Return codes. */
enum {
    SMEM_OK = 0,
    SMEM_ERROR = -1,
    SMEM_INVALID_PARAM = -2000,    /* a value, an address or a handle is wrong: correct the call */
    SMEM_MALLOC_FAILED = -2001,    /* the machine cannot give the memory */
    SMEM_NO_RESOURCES = -2002,     /* a capacity is used up, or this machine lacks something */
    SMEM_NOT_STARTED = -2003,      /* not joined */
    SMEM_TIMEOUT = -2004,          /* somebody did not answer; the sentence names who */
    SMEM_REPEAT_INVOKE = -2005,    /* can be called once only */
    SMEM_DUPLICATED = -2006,       /* exists already, with other properties */
    SMEM_NOT_EXIST = -2007,        /* there is no such thing */
    SMEM_NOT_INIT = -2008,         /* initialise the module first, in this very process */
    SMEM_RES_IN_USE = -2009,       /* somebody else has it */
    SMEM_PARTIAL_FAILED = -2012,   /* ended half-way: treat all targets as undefined */
    SMEM_NOT_CONNECTED = -2014,    /* the rank or session is not there */
    SMEM_BUFFER_TOO_SMALL = -2015, /* call again with a buffer of the size that was returned */

    /* Of external store backends; none of this version's stores answers so. */
    SMEM_STORE_INTERNAL = -3000, /* it failed inside */
    SMEM_STORE_INVAL = -3001,    /* an argument is wrong */
    SMEM_STORE_BUFEX = -3002,    /* the value is larger than the buffer for it */
    SMEM_STORE_PERM = -3003,     /* not allowed */
    SMEM_STORE_NORES = -3004,    /* it has no more to give */
    SMEM_STORE_NOENT = -3005,    /* there is no such key */
    SMEM_STORE_LOCKED = -3006,   /* somebody else has the lock */
    SMEM_STORE_UNLOCKED = -3007  /* the lock was not held */
};

#define SMEM_TLS_PATH_SIZE 256
#define SMEM_NO_RANK UINT32_MAX

/* TLS by the paths of files. Paths are NUL-terminated; "" stands for none. */
typedef struct {
    bool tlsEnable;
    char caPath[SMEM_TLS_PATH_SIZE];           /* file with the certificates of the authorities */
    char crlPath[SMEM_TLS_PATH_SIZE];          /* file with revoked certificates */
    char certPath[SMEM_TLS_PATH_SIZE];         /* file with this process's certificate */
    char keyPath[SMEM_TLS_PATH_SIZE];          /* file with its private key */
    char keyPassPath[SMEM_TLS_PATH_SIZE];      /* file with the key's passphrase */
    char packagePath[SMEM_TLS_PATH_SIZE];      /* accepted */
    char decrypterLibPath[SMEM_TLS_PATH_SIZE]; /* library with DecryptPassword, for a passphrase that is encrypted */
} smem_tls_config;

/* The same for smem_set_ssl_option. Any string may be NULL. */
typedef struct {
    bool enableTls;
    const char* tlsTopPath;    /* accepted */
    const char* tlsCert;       /* file */
    const char* tlsCrlPath;    /* folder */
    const char* tlsCaPath;     /* folder */
    const char* tlsCaFile;     /* files in tlsCaPath, separated by commas */
    const char* tlsCrlFile;    /* files in tlsCrlPath, separated by commas */
    const char* tlsPk;         /* file with the private key */
    const char* tlsPkPwd;      /* file with its passphrase */
    const char* kmcKsfMaster;  /* accepted */
    const char* kmcKsfStandby; /* accepted */
    const char* packagePath;   /* accepted */
} smem_tls_option;

/*
 * Turns an encrypted passphrase into the passphrase. `*plainLen` is the room in `plain` before the call and the length
 * of the passphrase after it. Returns 0, or anything else for a failure.
 */
typedef int (*smem_decrypt_handler)(const char* cipher, size_t cipherLen, char* plain, size_t* plainLen);

/* Gets every line of the log. `level`: 0 debug, 1 info, 2 warn, 3 error, 4 trace, 5 fatal. */
typedef void (*smem_extern_logger)(int level, const char* msg);

SMEM_STATIC_ASSERT(sizeof(void*) == 8, "this library is for 64-bit machines");
SMEM_PIN_SIZE(smem_tls_config, 1793);
SMEM_PIN_FIELD(smem_tls_config, tlsEnable, 0);
SMEM_PIN_FIELD(smem_tls_config, caPath, 1);
SMEM_PIN_FIELD(smem_tls_config, crlPath, 257);
SMEM_PIN_FIELD(smem_tls_config, certPath, 513);
SMEM_PIN_FIELD(smem_tls_config, keyPath, 769);
SMEM_PIN_FIELD(smem_tls_config, keyPassPath, 1025);
SMEM_PIN_FIELD(smem_tls_config, packagePath, 1281);
SMEM_PIN_FIELD(smem_tls_config, decrypterLibPath, 1537);
SMEM_PIN_SIZE(smem_tls_option, 96);
SMEM_PIN_FIELD(smem_tls_option, enableTls, 0);
SMEM_PIN_FIELD(smem_tls_option, tlsTopPath, 8);
SMEM_PIN_FIELD(smem_tls_option, tlsCert, 16);
SMEM_PIN_FIELD(smem_tls_option, tlsCrlPath, 24);
SMEM_PIN_FIELD(smem_tls_option, tlsCaPath, 32);
SMEM_PIN_FIELD(smem_tls_option, tlsCaFile, 40);
SMEM_PIN_FIELD(smem_tls_option, tlsCrlFile, 48);
SMEM_PIN_FIELD(smem_tls_option, tlsPk, 56);
SMEM_PIN_FIELD(smem_tls_option, tlsPkPwd, 64);
SMEM_PIN_FIELD(smem_tls_option, kmcKsfMaster, 72);
SMEM_PIN_FIELD(smem_tls_option, kmcKsfStandby, 80);
SMEM_PIN_FIELD(smem_tls_option, packagePath, 88);

/*
 * Calls with fewer or more arguments, as earlier versions of this interface had them: C chooses by their number, C++ by
 * overloading. The first argument that follows the given ones is the name of the function to call.
 *
 * In C the commas of a compound literal separate arguments, too. Such calls work in the present form of a function; in
 * parentheses, `(&(smem_copy_params){source, target, 8, NULL})`, a literal is one argument, in each form.
 */
#ifndef __cplusplus
#define SMEM_CHOOSE_2(a, b, chosen, ...) chosen
#define SMEM_CHOOSE_3(a, b, c, chosen, ...) chosen
/* Where compound literals may be given, whose commas count as well: for 24 arguments and less; from 9 on it is `many`.
 */
#define SMEM_CHOOSE_24(...) SMEM_CHOSEN_OF_24(__VA_ARGS__)
#define SMEM_MANY(many) many, many, many, many, many, many, many, many, many, many, many, many, many, many, many, many
#define SMEM_CHOSEN_OF_24(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, chosen, ...) chosen
#endif

#endif
