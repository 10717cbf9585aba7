// SPDX-License-Identifier: Apache-2.0
//
// Transfer. Memory and moves go straight to the core; the life of an engine is the control plane's.
#include <smem/host/smem_trans.h>

#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "capi/objects.h"
#include "capi/text_field.h"

using namespace memfabric;
using namespace memfabric::capi;

namespace {

int32_t refuse_engine(const char* call, smem_trans_t handle) {
    return handle == nullptr ? is_null(call, "handle") : refuse(call, "trans_refuse", handle);
}

std::uint64_t number_of(const void* address) { return reinterpret_cast<std::uint64_t>(address); }

static_assert(sizeof(void*) == sizeof(std::uint64_t) && sizeof(size_t) == sizeof(std::uint64_t));
template <typename Pointer>
std::span<const std::uint64_t> numbers_of(Pointer* addresses, std::size_t count) {
    return {reinterpret_cast<const std::uint64_t*>(addresses), count};
}

// What a move needs besides its bytes; answers for the call if something is missing.
struct Batch {
    const void* handle;
    const void* own;
    const char* session;
    const void* peers;
    const void* sizes;
};

int32_t check(const char* call, const Batch& batch) {
    if (batch.handle == nullptr) return is_null(call, "handle");
    if (batch.own == nullptr) return is_null(call, "localAddrs");
    if (batch.session == nullptr) return is_null(call, "remoteUniqueId");
    if (batch.peers == nullptr) return is_null(call, "remoteAddrs");
    if (batch.sizes == nullptr) return is_null(call, "dataSizes");
    return 0;
}

int32_t move(const char* call, Direction direction, smem_trans_t handle, const void* own, const char* session,
             const void* peer, size_t size) {
    TransferEngine* const engine = Engines::process().find(handle);
    if (session == nullptr) [[unlikely]]
        return is_null(call, "remoteUniqueId");
    if (engine == nullptr) [[unlikely]]
        return refuse_engine(call, handle);
    return outcome(call, [&] { return engine->transfer(direction, session, number_of(own), number_of(peer), size); });
}

template <typename Own, typename Peer>
int32_t move_batch(const char* call, Direction direction, smem_trans_t handle, Own* own, const char* session,
                   Peer* peers, const size_t* sizes, uint32_t count) {
    if (const int32_t code = check(call, {handle, own, session, peers, sizes})) return code;
    TransferEngine* const engine = Engines::process().find(handle);
    if (engine == nullptr) return refuse_engine(call, handle);
    const TransferArrays arrays{numbers_of(own, count), numbers_of(peers, count), numbers_of(sizes, count)};
    return outcome(call, [&] { return engine->transfer_batch(direction, session, arrays); });
}

template <typename Own, typename Peer>
int32_t submit(const char* call, Direction direction, smem_trans_t handle, Own* own, const char* session, Peer* peers,
               const size_t* sizes, uint32_t count, void* stream) {
    if (const int32_t code = check(call, {handle, own, session, peers, sizes})) return code;
    if (stream == nullptr) return is_null(call, "stream");
    TransferEngine* const engine = Engines::process().find(handle);
    if (engine == nullptr) return refuse_engine(call, handle);
    const TransferArrays arrays{numbers_of(own, count), numbers_of(peers, count), numbers_of(sizes, count)};
    return outcome(call, [&] { return engine->submit(direction, session, arrays, number_of(stream)); });
}

template <typename Pointer>
std::vector<std::uint64_t> owned(Pointer* addresses, std::size_t count) {
    const auto numbers = numbers_of(addresses, addresses == nullptr ? 0 : count);
    return {numbers.begin(), numbers.end()};
}

}  // namespace

int32_t smem_trans_config_init(smem_trans_config_t* config) {
    if (config == nullptr) return is_null("smem_trans_config_init", "config");
    const bridge::Call answer = control("trans_config_init");
    if (const Status status = check_numbers(answer, 5); status != Status::Ok) return code_of(status);
    *config = {};
    config->role = static_cast<smem_trans_role_t>(answer.numbers[0]);
    config->initTimeout = static_cast<uint32_t>(answer.numbers[1]);
    config->deviceId = static_cast<uint32_t>(answer.numbers[2]);
    config->flags = static_cast<uint32_t>(answer.numbers[3]);
    config->dataOpType = static_cast<smem_bm_data_op_type>(answer.numbers[4]);
    return 0;
}

int32_t smem_trans_init(const smem_trans_config_t* config) {
    if (config == nullptr) return is_null("smem_trans_init", "config");
    return code_of(control("trans_init", config->role, config->initTimeout).status);
}

void smem_trans_uninit(uint32_t flags) {
    if (bridge::served() == nullptr) return;  // nothing was ever begun
    code_of(control("trans_uninit", flags).status);
    Engines::process().remove_all();
}

smem_trans_t smem_trans_create(const char* storeUrl, const char* uniqueId, const smem_trans_config_t* config) {
    constexpr const char* kCall = "smem_trans_create";
    if (uniqueId == nullptr) return is_null(kCall, "uniqueId"), nullptr;
    if (config == nullptr) return is_null(kCall, "config"), nullptr;
    std::string_view nic;
    bridge::Texts data_tls;
    Status status = read_field("nic", config->nic, nic);
    if (status == Status::Ok) status = read_tls("hcomTlsConfig", config->hcomTlsConfig, data_tls);
    if (status != Status::Ok) return failed(kCall, status), nullptr;
    bridge::Call answer;
    return create<TransferEngine>(Engines::process(), kCall, "trans_create", answer, storeUrl, uniqueId, config->role,
                                  config->initTimeout, config->deviceId, config->dataOpType, nic, data_tls);
}

void smem_trans_destroy(smem_trans_t handle, uint32_t flags) {
    if (handle == nullptr) {
        is_null("smem_trans_destroy", "handle");
        return;
    }
    const Status status = control("trans_destroy", handle, flags).status;
    code_of(status);
    if (status == Status::Ok) Engines::process().remove(reinterpret_cast<std::uint64_t>(handle));
}

int32_t smem_trans_set_peer_down_callback(smem_trans_t handle, smem_trans_peer_down_callback_t callback,
                                          void* userData) {
    if (handle == nullptr) return is_null("smem_trans_set_peer_down_callback", "handle");
    return code_of(
        control("trans_set_peer_down_callback", handle, reinterpret_cast<const void*>(callback), userData).status);
}

int32_t smem_trans_register_mem(smem_trans_t handle, void* address, size_t capacity, uint32_t) {
    constexpr const char* kCall = "smem_trans_register_mem";
    if (handle != nullptr && address == nullptr) return is_null(kCall, "address");
    TransferEngine* const engine = Engines::process().find(handle);
    if (engine == nullptr) return refuse_engine(kCall, handle);
    const std::uint64_t start = number_of(address);
    const std::uint64_t size = capacity;
    return outcome(kCall, [&] { return engine->register_memory({&start, 1}, {&size, 1}); });
}

int32_t smem_trans_batch_register_mem(smem_trans_t handle, void* addresses[], size_t capacities[], uint32_t count,
                                      uint32_t) {
    constexpr const char* kCall = "smem_trans_batch_register_mem";
    TransferEngine* const engine = Engines::process().find(handle);
    if (addresses == nullptr) return is_null(kCall, "addresses");
    if (capacities == nullptr) return is_null(kCall, "capacities");
    if (engine == nullptr) return refuse_engine(kCall, handle);
    return outcome(
        kCall, [&] { return engine->register_memory(numbers_of(addresses, count), numbers_of(capacities, count)); });
}

int32_t smem_trans_deregister_mem(smem_trans_t handle, void* address) {
    constexpr const char* kCall = "smem_trans_deregister_mem";
    if (handle != nullptr && address == nullptr) return is_null(kCall, "address");
    TransferEngine* const engine = Engines::process().find(handle);
    if (engine == nullptr) return refuse_engine(kCall, handle);
    const std::uint64_t start = number_of(address);
    return outcome(kCall, [&] { return engine->unregister_memory({&start, 1}); });
}

void* smem_trans_malloc(smem_trans_t handle, size_t capacity) {
    constexpr const char* kCall = "smem_trans_malloc";
    TransferEngine* const engine = Engines::process().find(handle);
    if (engine == nullptr) return refuse_engine(kCall, handle), nullptr;
    std::uint64_t address = 0;
    if (outcome(kCall, [&] { return engine->allocate(capacity, address); }) != 0) return nullptr;
    return reinterpret_cast<void*>(address);
}

int32_t smem_trans_free(smem_trans_t handle, void* address) {
    constexpr const char* kCall = "smem_trans_free";
    if (handle != nullptr && address == nullptr) return is_null(kCall, "address");
    TransferEngine* const engine = Engines::process().find(handle);
    return engine == nullptr ? refuse_engine(kCall, handle)
                             : outcome(kCall, [&] { return engine->release(number_of(address)); });
}

int32_t smem_trans_read(smem_trans_t handle, void* localAddr, const char* remoteUniqueId, const void* remoteAddr,
                        size_t dataSize, uint32_t) {
    return move("smem_trans_read", Direction::Read, handle, localAddr, remoteUniqueId, remoteAddr, dataSize);
}

int32_t smem_trans_write(smem_trans_t handle, const void* localAddr, const char* remoteUniqueId, void* remoteAddr,
                         size_t dataSize, uint32_t) {
    return move("smem_trans_write", Direction::Write, handle, localAddr, remoteUniqueId, remoteAddr, dataSize);
}

int32_t smem_trans_batch_read(smem_trans_t handle, void* localAddrs[], const char* remoteUniqueId,
                              const void* remoteAddrs[], size_t dataSizes[], uint32_t batchSize, uint32_t) {
    return move_batch("smem_trans_batch_read", Direction::Read, handle, localAddrs, remoteUniqueId, remoteAddrs,
                      dataSizes, batchSize);
}

int32_t smem_trans_batch_write(smem_trans_t handle, const void* localAddrs[], const char* remoteUniqueId,
                               void* remoteAddrs[], size_t dataSizes[], uint32_t batchSize, uint32_t) {
    return move_batch("smem_trans_batch_write", Direction::Write, handle, localAddrs, remoteUniqueId, remoteAddrs,
                      dataSizes, batchSize);
}

int32_t smem_trans_read_submit(smem_trans_t handle, void* localAddr, const char* remoteUniqueId, const void* remoteAddr,
                               size_t dataSize, void* stream, uint32_t) {
    return submit("smem_trans_read_submit", Direction::Read, handle, &localAddr, remoteUniqueId, &remoteAddr, &dataSize,
                  1, stream);
}

int32_t smem_trans_write_submit(smem_trans_t handle, const void* localAddr, const char* remoteUniqueId,
                                void* remoteAddr, size_t dataSize, void* stream, uint32_t) {
    return submit("smem_trans_write_submit", Direction::Write, handle, &localAddr, remoteUniqueId, &remoteAddr,
                  &dataSize, 1, stream);
}

int32_t smem_trans_batch_read_submit(smem_trans_t handle, void* localAddrs[], const char* remoteUniqueId,
                                     const void* remoteAddrs[], size_t dataSizes[], uint32_t batchSize, void* stream,
                                     uint32_t) {
    return submit("smem_trans_batch_read_submit", Direction::Read, handle, localAddrs, remoteUniqueId, remoteAddrs,
                  dataSizes, batchSize, stream);
}

int32_t smem_trans_batch_write_submit(smem_trans_t handle, const void* localAddrs[], const char* remoteUniqueId,
                                      void* remoteAddrs[], size_t dataSizes[], uint32_t batchSize, void* stream,
                                      uint32_t) {
    return submit("smem_trans_batch_write_submit", Direction::Write, handle, localAddrs, remoteUniqueId, remoteAddrs,
                  dataSizes, batchSize, stream);
}

int32_t smem_trans_batch_quant_write(smem_trans_t handle, smem_trans_quant_copy_param_t* params) {
    constexpr const char* kCall = "smem_trans_batch_quant_write";
    if (params == nullptr) return is_null(kCall, "params");
    const auto& given = *params;
    if (const int32_t code =
            check(kCall, {handle, given.localAddrs, given.remoteUniqueId, given.remoteAddrs, given.dataSizes})) {
        return code;
    }
    if (given.scale == nullptr) return is_null(kCall, "params->scale");
    TransferEngine* const engine = Engines::process().find(handle);
    if (engine == nullptr) return refuse_engine(kCall, handle);
    const std::size_t count = given.batchSize;
    if (count == 0 || count > kMaxBatchPieces) {  // before the arrays are read
        return failed(kCall, fail(Status::InvalidParam, "the batch has %zu pieces, it must have 1 to %zu", count,
                                  kMaxBatchPieces));
    }
    return outcome(kCall, [&] {
        QuantisedBatch batch{owned(given.localAddrs, count),
                             owned(given.remoteAddrs, count),
                             owned(given.dataSizes, count),
                             owned(given.scale, count),
                             owned(given.offset, count),
                             given.unitNum,
                             static_cast<HalfType>(given.inputType),
                             {}};
        return engine->write_quantised(given.remoteUniqueId, std::move(batch), number_of(given.stream));
    });
}
