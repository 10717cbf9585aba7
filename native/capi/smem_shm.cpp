// SPDX-License-Identifier: Apache-2.0
//
// Share Memory. Barrier and all-gather of all ranks go straight to the core; everything else asks the control plane.
#include <smem/host/smem_shm.h>

#include <cstring>

#include "base/last_error.h"
#include "capi/objects.h"

using namespace memfabric;
using namespace memfabric::capi;

namespace {

int32_t refuse_heap(const char* call, smem_shm_t handle) {
    return handle == nullptr ? is_null(call, "handle") : refuse(call, "shm_refuse", handle);
}

bridge::Bytes bytes_of(const void* data, std::size_t size) { return {{static_cast<const std::byte*>(data), size}}; }

// Room for what everybody brings, no less and no more.
Status check_room(const char* call, std::uint32_t sent, std::uint32_t room, std::uint32_t ranks) {
    if (room == std::uint64_t{sent} * ranks) return Status::Ok;
    return fail(Status::InvalidParam, "%s: recvSize is %u, expected %llu (sendSize %u × %u ranks)", call, room,
                static_cast<unsigned long long>(sent) * ranks, sent, ranks);
}

uint32_t number_or(const bridge::Call& answer, uint32_t otherwise) {
    if (answer.status == Status::Ok && answer.numbers.size() == 1) return static_cast<uint32_t>(answer.numbers[0]);
    code_of(answer.status);
    return otherwise;
}

}  // namespace

int32_t smem_shm_config_init(smem_shm_config_t* config) {
    if (config == nullptr) return is_null("smem_shm_config_init", "config");
    const bridge::Call answer = control("shm_config_init");
    if (const Status status = check_numbers(answer, 5); status != Status::Ok) return code_of(status);
    *config = {};
    config->shmInitTimeout = static_cast<uint32_t>(answer.numbers[0]);
    config->shmCreateTimeout = static_cast<uint32_t>(answer.numbers[1]);
    config->controlOperationTimeout = static_cast<uint32_t>(answer.numbers[2]);
    config->startConfigStoreServer = answer.numbers[3] != 0;
    config->flags = static_cast<uint32_t>(answer.numbers[4]);
    return 0;
}

int32_t smem_shm_init(const char* configStoreIpPort, uint32_t worldSize, uint32_t rankId, uint16_t deviceId,
                      smem_shm_config_t* config) {
    if (configStoreIpPort == nullptr) return is_null("smem_shm_init", "configStoreIpPort");
    if (config == nullptr) return is_null("smem_shm_init", "config");
    return code_of(control("shm_init", configStoreIpPort, worldSize, rankId, deviceId, config->shmInitTimeout,
                           config->shmCreateTimeout, config->controlOperationTimeout, config->startConfigStoreServer,
                           config->flags)
                       .status);
}

void smem_shm_uninit(uint32_t flags) {
    if (bridge::served() == nullptr) return;  // nothing was ever begun
    code_of(control("shm_uninit", flags).status);
    Heaps::process().remove_all();
}

uint32_t smem_shm_query_support_data_operation() { return number_or(control("shm_query_support_data_operation"), 0); }

smem_shm_t smem_shm_create(uint32_t id, uint32_t rankSize, uint32_t rankId, uint64_t symmetricSize,
                           smem_shm_data_op_type dataOpType, uint32_t flags, void** gva) {
    if (gva == nullptr) return is_null("smem_shm_create", "gva"), nullptr;
    bridge::Call answer;
    void* const handle = create<bridge::Heap>(Heaps::process(), "smem_shm_create", "shm_create", answer, id, rankSize,
                                              rankId, symmetricSize, dataOpType, flags);
    if (handle != nullptr && answer.numbers.size() == 1) *gva = reinterpret_cast<void*>(answer.numbers[0]);
    return handle;
}

int32_t smem_shm_destroy(smem_shm_t handle, uint32_t flags) {
    if (handle == nullptr) return is_null("smem_shm_destroy", "handle");
    const Status status = control("shm_destroy", handle, flags).status;
    if (status == Status::Ok) Heaps::process().remove(reinterpret_cast<std::uint64_t>(handle));
    return code_of(status);
}

int32_t smem_shm_set_extra_context(smem_shm_t handle, const void* context, uint32_t size) {
    if (handle == nullptr) return is_null("smem_shm_set_extra_context", "handle");
    if (context == nullptr) return is_null("smem_shm_set_extra_context", "context");
    return code_of(control("shm_set_extra_context", handle, bytes_of(context, size)).status);
}

uint32_t smem_shm_get_global_rank(smem_shm_t handle) {
    if (handle == nullptr) return is_null("smem_shm_get_global_rank", "handle"), SMEM_NO_RANK;
    return number_or(control("shm_get_global_rank", handle), SMEM_NO_RANK);
}

uint32_t smem_shm_get_global_rank_size(smem_shm_t handle) {
    if (handle == nullptr) return is_null("smem_shm_get_global_rank_size", "handle"), SMEM_NO_RANK;
    return number_or(control("shm_get_global_rank_size", handle), SMEM_NO_RANK);
}

uint64_t smem_shm_get_symmetric_size(smem_shm_t handle) {
    if (handle == nullptr) return is_null("smem_shm_get_symmetric_size", "handle"), 0;
    const bridge::Call answer = control("shm_get_symmetric_size", handle);
    if (answer.status == Status::Ok && answer.numbers.size() == 1) return static_cast<uint64_t>(answer.numbers[0]);
    code_of(answer.status);
    return 0;
}

int32_t smem_shm_topology_can_reach(smem_shm_t handle, uint32_t remoteRank, uint32_t* reachInfo) {
    if (handle == nullptr) return is_null("smem_shm_topology_can_reach", "handle");
    if (reachInfo == nullptr) return is_null("smem_shm_topology_can_reach", "reachInfo");
    const bridge::Call answer = control("shm_topology_can_reach", handle, remoteRank);
    const Status status = check_numbers(answer, 1);
    if (status == Status::Ok) *reachInfo = static_cast<uint32_t>(answer.numbers[0]);
    return code_of(status);
}

int32_t smem_shm_control_barrier(smem_shm_t handle) {
    constexpr const char* kCall = "smem_shm_control_barrier";
    const bridge::Heap* const heap = Heaps::process().find(handle);
    if (heap == nullptr) return refuse_heap(kCall, handle);
    return outcome(kCall, [&] { return heap->group->barrier(heap->timeout, heap->inter_host.get()); });
}

int32_t smem_shm_control_allgather(smem_shm_t handle, const char* sendBuf, uint32_t sendSize, char* recvBuf,
                                   uint32_t recvSize) {
    constexpr const char* kCall = "smem_shm_control_allgather";
    const bridge::Heap* const heap = Heaps::process().find(handle);
    if (handle == nullptr) return is_null(kCall, "handle");
    if (sendBuf == nullptr) return is_null(kCall, "sendBuf");
    if (recvBuf == nullptr) return is_null(kCall, "recvBuf");
    if (heap == nullptr) return refuse_heap(kCall, handle);
    if (sendSize == 0 || sendSize > SMEM_SHM_GATHER_MAX) {
        return failed(kCall, fail(Status::InvalidParam, "%s: sendSize is %u, expected 1 to %u", kCall, sendSize,
                                  SMEM_SHM_GATHER_MAX));
    }
    const Status room = check_room(kCall, sendSize, recvSize, heap->group->config().rank_size);
    if (room != Status::Ok) return failed(kCall, room);
    return outcome(kCall, [&] {
        return heap->group->all_gather(reinterpret_cast<const std::byte*>(sendBuf), sendSize,
                                       reinterpret_cast<std::byte*>(recvBuf), heap->timeout, heap->inter_host.get());
    });
}

int32_t smem_shm_subgroup_barrier(smem_shm_t handle, const char* key, uint32_t rankSize, uint32_t rankId) {
    if (handle == nullptr) return is_null("smem_shm_subgroup_barrier", "handle");
    if (key == nullptr) return is_null("smem_shm_subgroup_barrier", "key");
    return code_of(control("shm_subgroup_barrier", handle, key, rankSize, rankId).status);
}

int32_t smem_shm_subgroup_allgather(smem_shm_t handle, const char* key, uint32_t rankSize, uint32_t rankId,
                                    const char* sendBuf, uint32_t sendSize, char* recvBuf, uint32_t recvSize) {
    constexpr const char* kCall = "smem_shm_subgroup_allgather";
    if (handle == nullptr) return is_null(kCall, "handle");
    if (key == nullptr) return is_null(kCall, "key");
    if (sendBuf == nullptr) return is_null(kCall, "sendBuf");
    if (recvBuf == nullptr) return is_null(kCall, "recvBuf");
    if (Heaps::process().find(handle) == nullptr) return refuse_heap(kCall, handle);
    const Status room = check_room(kCall, sendSize, recvSize, rankSize);
    if (room != Status::Ok) return failed(kCall, room);
    const bridge::Call answer =
        control("shm_subgroup_allgather", handle, key, rankSize, rankId, bytes_of(sendBuf, sendSize));
    if (answer.status == Status::Ok) std::memcpy(recvBuf, answer.bytes.data(), answer.bytes.size());
    return code_of(answer.status);
}

int32_t smem_shm_atomic_alloc_value(smem_shm_t handle, uint32_t limit, int32_t* value) {
    if (handle == nullptr) return is_null("smem_shm_atomic_alloc_value", "handle");
    if (value == nullptr) return is_null("smem_shm_atomic_alloc_value", "value");
    const bridge::Call answer = control("shm_atomic_alloc_value", handle, limit);
    const Status status = check_numbers(answer, 1);
    if (status == Status::Ok) *value = static_cast<int32_t>(answer.numbers[0]);
    return code_of(status);
}

int32_t smem_shm_atomic_release_value(smem_shm_t handle, int32_t value) {
    if (handle == nullptr) return is_null("smem_shm_atomic_release_value", "handle");
    return code_of(control("shm_atomic_release_value", handle, value).status);
}

int32_t smem_shm_register_exit(smem_shm_t handle, void (*exit)(int)) {
    if (handle == nullptr) return is_null("smem_shm_register_exit", "handle");
    if (exit == nullptr) return is_null("smem_shm_register_exit", "exit");
    return code_of(control("shm_register_exit", handle, reinterpret_cast<const void*>(exit)).status);
}

void smem_shm_global_exit(smem_shm_t handle, int status) {
    if (handle == nullptr) {
        is_null("smem_shm_global_exit", "handle");
        return;
    }
    code_of(control("shm_global_exit", handle, status).status);
}
