// SPDX-License-Identifier: Apache-2.0
#include "ucx/context.h"

#include <utility>

#include "base/last_error.h"

namespace memfabric::ucx {
namespace {

constexpr unsigned kApiMajor = 1;
constexpr unsigned kApiMinor = 13;  // what abi.h declares

}  // namespace

Status Context::open(const Options& options) {
    const abi::Functions& calls = library_.calls();
    abi::Config config = nullptr;
    abi::Result result = calls.config_read(nullptr, nullptr, &config);
    if (result != abi::kOk) {
        return fail(Status::InvalidParam, "UCX cannot read its settings (UCX_… of the environment): %s",
                    library_.text(result).c_str());
    }
    result = calls.config_modify(config, "TLS", options.transports.c_str());
    if (result == abi::kOk) result = calls.config_modify(config, "NET_DEVICES", options.devices.c_str());
    abi::ContextParams params{};
    params.field_mask = abi::ContextParams::kFeatures | abi::ContextParams::kWorkersShared | abi::ContextParams::kName;
    params.features = abi::ContextParams::kRma | abi::ContextParams::kWakeup;
    params.workers_shared = 1;
    params.name = "memfabric";
    if (result == abi::kOk) result = calls.init(kApiMajor, kApiMinor, &params, config, &handle_);
    calls.config_release(config);
    if (result == abi::kOk) return Status::Ok;
    return fail(Status::NoResources,
                "UCX %s of %s has no way over transports %s on devices %s: %s; choose devices that it has "
                "(ucx_info -d lists them)",
                library_.version().c_str(), library_.path().c_str(), options.transports.c_str(),
                options.devices.c_str(), library_.text(result).c_str());
}

Context::~Context() {
    if (handle_ != nullptr) library_.calls().cleanup(handle_);
}

Status Context::make_worker(std::unique_ptr<Worker>& made) const {
    auto worker = std::make_unique<Worker>(library_);
    if (const Status status = worker->open(handle_); status != Status::Ok) return status;
    made = std::move(worker);
    return Status::Ok;
}

Status Context::map(std::byte* address, std::size_t size_bytes, abi::Memory& memory, std::string& key) const {
    abi::MemoryParams params{};
    params.field_mask = abi::MemoryParams::kAddress | abi::MemoryParams::kLength;
    params.address = address;
    params.length = size_bytes;
    abi::Result result = library_.calls().mem_map(handle_, &params, &memory);
    if (result != abi::kOk) {
        return fail(Status::NoResources,
                    "UCX cannot register %zu bytes at %p: %s; raise the limit of locked memory (ulimit -l)", size_bytes,
                    static_cast<void*>(address), library_.text(result).c_str());
    }
    void* buffer = nullptr;
    std::size_t key_bytes = 0;
    result = library_.calls().rkey_pack(handle_, memory, &buffer, &key_bytes);
    if (result != abi::kOk) {
        unmap(memory);
        return fail(Status::NoResources, "UCX has no key for %zu bytes at %p: %s", size_bytes,
                    static_cast<void*>(address), library_.text(result).c_str());
    }
    key.assign(static_cast<const char*>(buffer), key_bytes);
    library_.calls().rkey_buffer_release(buffer);
    return Status::Ok;
}

void Context::unmap(abi::Memory memory) const { static_cast<void>(library_.calls().mem_unmap(handle_, memory)); }

}  // namespace memfabric::ucx
