// SPDX-License-Identifier: Apache-2.0
#include "ucx/endpoint.h"

#include <utility>

namespace memfabric::ucx {

Endpoint::~Endpoint() {
    for (abi::RemoteKey key : keys_) {
        if (key != nullptr) worker_.library().calls().rkey_destroy(key);
    }
}

void Endpoint::open(const RemoteMemory& memory) {
    abi::EndpointParams params{};
    params.field_mask =
        abi::EndpointParams::kRemoteAddress | abi::EndpointParams::kErrorMode | abi::EndpointParams::kErrorHandler;
    params.remote_address = memory.worker_address.data();
    // Without it a read from a process that was killed would never end.
    params.error_mode = abi::EndpointParams::kPeer;
    params.error_handler = [](void* self, abi::Endpoint, abi::Result result) {
        static_cast<Endpoint*>(self)->failure_ = result;
    };
    params.error_argument = this;
    const abi::Functions& calls = worker_.library().calls();
    failure_ = calls.ep_create(worker_.handle(), &params, &handle_);
    if (failure_ != abi::kOk) handle_ = nullptr;
}

// A key belongs to the connection that unpacked it.
abi::Result Endpoint::unlock(const RemoteMemory& memory, std::size_t region) {
    if (keys_.size() <= region) keys_.resize(region + 1, nullptr);
    if (keys_[region] != nullptr) return abi::kOk;
    abi::RemoteKey key = nullptr;
    const abi::Result result =
        worker_.library().calls().ep_rkey_unpack(handle_, memory.regions[region].key.data(), &key);
    if (result == abi::kOk) keys_[region] = key;
    return result;
}

abi::Request Endpoint::put(const void* source, std::size_t size_bytes, std::uint64_t target, const RemoteMemory& memory,
                           std::size_t region, const abi::RequestParams& params) {
    if (const abi::Result result = unlock(memory, region); result != abi::kOk) return abi::failed(result);
    return worker_.library().calls().put(handle_, source, size_bytes, target, keys_[region], &params);
}

abi::Request Endpoint::get(void* target, std::size_t size_bytes, std::uint64_t source, const RemoteMemory& memory,
                           std::size_t region, const abi::RequestParams& params) {
    if (const abi::Result result = unlock(memory, region); result != abi::kOk) return abi::failed(result);
    return worker_.library().calls().get(handle_, target, size_bytes, source, keys_[region], &params);
}

abi::Request Endpoint::flush(const abi::RequestParams& params) {
    return worker_.library().calls().ep_flush(handle_, &params);
}

void Endpoint::begin_close() {
    if (std::exchange(closing_, true) || handle_ == nullptr) return;
    abi::RequestParams params{};
    params.field_mask = abi::RequestParams::kFlags;
    params.flags = abi::RequestParams::kForce;
    const abi::Request request = worker_.library().calls().ep_close(handle_, &params);
    if (!abi::is_failure(request)) close_request_ = request;
}

bool Endpoint::is_closed() {
    if (!closing_) return false;
    if (close_request_ == nullptr) return true;
    const abi::Functions& calls = worker_.library().calls();
    if (calls.request_status(close_request_) == abi::kInProgress) return false;
    calls.request_free(std::exchange(close_request_, nullptr));
    return true;
}

}  // namespace memfabric::ucx
