/* SPDX-License-Identifier: Apache-2.0 */
/* A library as smem_tls_config.decrypterLibPath names one: the passphrase is the other way round. */
#include <stddef.h>

int DecryptPassword(const char* cipher, size_t cipherLen, char* plain, size_t* plainLen);

int DecryptPassword(const char* cipher, size_t cipherLen, char* plain, size_t* plainLen) {
    if (*plainLen < cipherLen) return 1;
    for (size_t i = 0; i < cipherLen; ++i) plain[i] = cipher[cipherLen - 1 - i];
    *plainLen = cipherLen;
    return 0;
}
