/* SPDX-License-Identifier: Apache-2.0 */
/* A part of the kernel interface by the name that programs include; all of it is in one header. */
#ifndef MEMFABRIC_SMEM_SHM_AICORE_BASE_META_H
#define MEMFABRIC_SMEM_SHM_AICORE_BASE_META_H

#include "smem_shm_aicore_base_api.h"

#endif
