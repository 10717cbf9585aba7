// SPDX-License-Identifier: Apache-2.0
//
// Big Memory. Copies, `wait` and the owner of an address go straight to the core; budget above the core's: one look at
// the handle's slot and at this thread's last handle, no lock, no system call. Everything else asks the control plane.
#include <smem/host/smem_bm.h>

#include <cstring>
#include <iterator>

#include "capi/objects.h"
#include "capi/text_field.h"
#include "memory/layout.h"

using namespace memfabric;
using namespace memfabric::capi;

namespace {

int32_t refuse_pool(const char* call, smem_bm_t handle) {
    return handle == nullptr ? is_null(call, "handle") : refuse(call, "bm_refuse", handle);
}

std::uintptr_t address_of(const void* place) { return reinterpret_cast<std::uintptr_t>(place); }

}  // namespace

int32_t smem_bm_config_init(smem_bm_config_t* config) {
    if (config == nullptr) return is_null("smem_bm_config_init", "config");
    const bridge::Call answer = control("bm_config_init");
    if (const Status status = check_numbers(answer, 10); status != Status::Ok) return code_of(status);
    *config = {};
    const auto& given = answer.numbers;
    config->initTimeout = static_cast<uint32_t>(given[0]);
    config->createTimeout = static_cast<uint32_t>(given[1]);
    config->controlOperationTimeout = static_cast<uint32_t>(given[2]);
    config->startConfigStoreServer = given[3] != 0;
    config->startConfigStoreOnly = given[4] != 0;
    config->dynamicWorldSize = given[5] != 0;
    config->unifiedAddressSpace = given[6] != 0;
    config->autoRanking = given[7] != 0;
    config->rankId = static_cast<uint32_t>(given[8]);
    config->flags = static_cast<uint32_t>(given[9]);
    return 0;
}

int32_t smem_bm_init(const char* storeURL, uint32_t worldSize, uint16_t deviceId, const smem_bm_config_t* config) {
    constexpr const char* kCall = "smem_bm_init";
    if (storeURL == nullptr) return is_null(kCall, "storeURL");
    if (config == nullptr) return is_null(kCall, "config");
    std::string_view nic;
    bridge::Texts data_tls;
    bridge::Texts store_tls;
    Status status = read_field("hcomUrl", config->hcomUrl, nic);
    if (status == Status::Ok) status = read_tls("hcomTlsConfig", config->hcomTlsConfig, data_tls);
    if (status == Status::Ok) status = read_tls("storeTlsConfig", config->storeTlsConfig, store_tls);
    if (status != Status::Ok) return failed(kCall, status);
    return code_of(control("bm_init", storeURL, worldSize, deviceId, config->initTimeout, config->createTimeout,
                           config->controlOperationTimeout, config->startConfigStoreServer,
                           config->startConfigStoreOnly, config->dynamicWorldSize, config->unifiedAddressSpace,
                           config->autoRanking, config->rankId, config->flags, nic, data_tls, store_tls)
                       .status);
}

void smem_bm_uninit(uint32_t flags) {
    if (bridge::served() == nullptr) return;  // nothing was ever begun
    code_of(control("bm_uninit", flags).status);
    Pools::process().remove_all();
}

uint32_t smem_bm_get_rank_id() {
    const bridge::Call answer = control("bm_get_rank_id");
    if (answer.status == Status::Ok && answer.numbers.size() == 1) return static_cast<uint32_t>(answer.numbers[0]);
    code_of(answer.status);
    return SMEM_NO_RANK;
}

int32_t smem_bm_update_store_url(const char* storeURL) {
    if (storeURL == nullptr) return is_null("smem_bm_update_store_url", "storeURL");
    return code_of(control("bm_update_store_url", storeURL).status);
}

smem_bm_t smem_bm_create(uint32_t id, uint32_t, smem_bm_data_op_type dataOpType, uint64_t localDRAMSize,
                         uint64_t localHBMSize, uint32_t flags) {
    bridge::Call answer;
    return create<Space>(Pools::process(), "smem_bm_create", "bm_create", answer, id, localDRAMSize, localDRAMSize,
                         localHBMSize, localHBMSize, dataOpType, false, flags, -1, "", "");
}

smem_bm_t smem_bm_create2(uint32_t id, const smem_bm_create_option_t* option) {
    constexpr const char* kCall = "smem_bm_create2";
    if (option == nullptr) {
        is_null(kCall, "option");
        return nullptr;
    }
    std::string_view tag;
    std::string_view rules;
    Status status = read_field("tag", option->tag, tag);
    if (status == Status::Ok) status = read_field("tagOpInfo", option->tagOpInfo, rules);
    if (status != Status::Ok) {
        failed(kCall, status);
        return nullptr;
    }
    bridge::Call answer;
    const bool has_file = (option->flags & SMEM_BM_CREATE_WITH_SHM) != 0;  // a zeroed option has descriptor 0
    return create<Space>(Pools::process(), kCall, "bm_create", answer, id, option->localDRAMSize, option->maxDramSize,
                         option->localHBMSize, option->maxHbmSize, option->dataOpType, option->enable56BitsGva,
                         option->flags, has_file ? option->dramShmFd : -1, tag, rules);
}

void smem_bm_destroy(smem_bm_t handle) {
    if (handle == nullptr) {
        is_null("smem_bm_destroy", "handle");
        return;
    }
    const Status status = control("bm_destroy", handle).status;
    code_of(status);
    if (status == Status::Ok) Pools::process().remove(reinterpret_cast<std::uint64_t>(handle));
}

int32_t smem_bm_join(smem_bm_t handle, uint32_t flags) {
    if (handle == nullptr) return is_null("smem_bm_join", "handle");
    return code_of(control("bm_join", handle, flags).status);
}

int32_t smem_bm_leave(smem_bm_t handle, uint32_t flags) {
    if (handle == nullptr) return is_null("smem_bm_leave", "handle");
    return code_of(control("bm_leave", handle, flags).status);
}

int32_t smem_bm_extend_local_mem(smem_bm_t handle, smem_bm_mem_type memType, uint64_t size) {
    if (handle == nullptr) return is_null("smem_bm_extend_local_mem", "handle");
    return code_of(control("bm_extend_local_mem", handle, memType, size).status);
}

int32_t smem_bm_set_group_event_handler(smem_bm_t handle, smem_bm_group_event_cb cb, void* context) {
    if (handle == nullptr) return is_null("smem_bm_set_group_event_handler", "handle");
    return code_of(control("bm_set_group_event_handler", handle, reinterpret_cast<const void*>(cb), context).status);
}

uint64_t smem_bm_get_local_mem_size_by_mem_type(smem_bm_t handle, smem_bm_mem_type memType) {
    if (handle == nullptr) return is_null("smem_bm_get_local_mem_size_by_mem_type", "handle"), 0;
    const bridge::Call answer = control("bm_get_local_mem_size_by_mem_type", handle, memType);
    if (answer.status == Status::Ok && answer.numbers.size() == 1) return static_cast<uint64_t>(answer.numbers[0]);
    code_of(answer.status);
    return 0;
}

void* smem_bm_ptr_by_mem_type(smem_bm_t handle, smem_bm_mem_type memType, uint16_t peerRankId) {
    if (handle == nullptr) return is_null("smem_bm_ptr_by_mem_type", "handle"), nullptr;
    const bridge::Call answer = control("bm_ptr_by_mem_type", handle, memType, peerRankId);
    if (answer.status == Status::Ok && answer.numbers.size() == 1) return reinterpret_cast<void*>(answer.numbers[0]);
    code_of(answer.status);
    return nullptr;
}

uint64_t smem_bm_get_local_mem_size(smem_bm_t handle) {
    Space* const space = Pools::process().find(handle);
    if (space == nullptr) return refuse_pool("smem_bm_get_local_mem_size", handle), 0;
    return smem_bm_get_local_mem_size_by_mem_type(
        handle, space->layout().max_bytes(Tier::Hbm) != 0 ? SMEM_MEM_TYPE_DEVICE : SMEM_MEM_TYPE_HOST);
}

void* smem_bm_ptr(smem_bm_t handle, uint16_t peerRankId) {
    Space* const space = Pools::process().find(handle);
    if (space == nullptr) return refuse_pool("smem_bm_ptr", handle), nullptr;
    return smem_bm_ptr_by_mem_type(
        handle, space->layout().max_bytes(Tier::Hbm) != 0 ? SMEM_MEM_TYPE_DEVICE : SMEM_MEM_TYPE_HOST, peerRankId);
}

uint32_t smem_bm_get_rank_id_by_gva(smem_bm_t handle, void* gva) {
    constexpr const char* kCall = "smem_bm_get_rank_id_by_gva";
    if (handle != nullptr && gva == nullptr) return is_null(kCall, "gva"), SMEM_NO_RANK;
    Space* const space = Pools::process().find(handle);
    if (space == nullptr) return refuse_pool(kCall, handle), SMEM_NO_RANK;
    const std::uint32_t rank = space->rank_of(address_of(gva));
    if (rank != kNoRank) return rank;
    const std::string why = last_error();
    const Status state = space->check_usable();
    if (state == Status::Ok) set_last_error(why);
    failed(kCall, state == Status::Ok ? Status::InvalidParam : state);
    return SMEM_NO_RANK;
}

int32_t smem_bm_gva_to_va(smem_bm_t handle, void* gva, smem_bm_mem_type vaMemType, void** va) {
    if (handle == nullptr) return is_null("smem_bm_gva_to_va", "handle");
    if (gva == nullptr) return is_null("smem_bm_gva_to_va", "gva");
    if (va == nullptr) return is_null("smem_bm_gva_to_va", "va");
    const bridge::Call answer = control("bm_gva_to_va", handle, gva, vaMemType);
    const Status status = check_numbers(answer, 1);
    if (status == Status::Ok) *va = reinterpret_cast<void*>(answer.numbers[0]);
    return code_of(status);
}

int32_t smem_bm_register_user_mem(smem_bm_t handle, uint64_t addr, uint64_t size) {
    if (handle == nullptr) return is_null("smem_bm_register_user_mem", "handle");
    return code_of(control("bm_register_user_mem", handle, addr, size).status);
}

int32_t smem_bm_unregister_user_mem(smem_bm_t handle, uint64_t addr) {
    if (handle == nullptr) return is_null("smem_bm_unregister_user_mem", "handle");
    return code_of(control("bm_unregister_user_mem", handle, addr).status);
}

int32_t smem_bm_copy(smem_bm_t handle, smem_copy_params* params, smem_bm_copy_type t, uint32_t flags) {
    constexpr const char* kCall = "smem_bm_copy";
    Space* const space = Pools::process().find(handle);
    if (params == nullptr) [[unlikely]]
        return is_null(kCall, "params");
    if (space == nullptr) [[unlikely]]
        return refuse_pool(kCall, handle);
    return outcome(kCall, [&] {
        return space->copy(address_of(params->src), address_of(params->dest), params->dataSize, t, flags,
                           address_of(params->stream));
    });
}

int32_t smem_bm_copy_batch(smem_bm_t handle, smem_batch_copy_params* params, smem_bm_copy_type t, uint32_t flags) {
    constexpr const char* kCall = "smem_bm_copy_batch";
    Space* const space = Pools::process().find(handle);
    if (params == nullptr) return is_null(kCall, "params");
    if (params->sources == nullptr) return is_null(kCall, "params->sources");
    if (params->destinations == nullptr) return is_null(kCall, "params->destinations");
    if (params->dataSizes == nullptr) return is_null(kCall, "params->dataSizes");
    if (space == nullptr) return refuse_pool(kCall, handle);
    const std::size_t count = params->batchSize;
    const BatchArrays batch{{reinterpret_cast<const std::uint64_t*>(params->sources), count},
                            {reinterpret_cast<const std::uint64_t*>(params->destinations), count},
                            {params->dataSizes, count}};
    return outcome(kCall, [&] { return space->copy_batch(batch, count, t, flags, address_of(params->stream)); });
}

int32_t smem_bm_copy_2d(smem_bm_t handle, const void* src, uint64_t spitch, void* dest, uint64_t dpitch, uint64_t width,
                        uint64_t height, smem_bm_copy_type t, uint32_t flags) {
    constexpr const char* kCall = "smem_bm_copy_2d";
    Space* const space = Pools::process().find(handle);
    if (space == nullptr) return refuse_pool(kCall, handle);
    const Rectangle rectangle{
        static_cast<std::byte*>(dest), dpitch, static_cast<const std::byte*>(src), spitch, width, height};
    return outcome(kCall, [&] { return space->copy_2d(rectangle, t, flags); });
}

int32_t smem_bm_wait(smem_bm_t handle) {
    Space* const space = Pools::process().find(handle);
    return space == nullptr ? refuse_pool("smem_bm_wait", handle)
                            : outcome("smem_bm_wait", [&] { return space->wait(); });
}
