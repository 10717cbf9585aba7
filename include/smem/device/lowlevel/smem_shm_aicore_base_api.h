/* SPDX-License-Identifier: Apache-2.0 */
/* Where the first release has the kernel interface. */
#ifndef MEMFABRIC_LOWLEVEL_SMEM_SHM_AICORE_BASE_API_H
#define MEMFABRIC_LOWLEVEL_SMEM_SHM_AICORE_BASE_API_H

#include "../smem_shm_aicore_base_api.h"

#endif
