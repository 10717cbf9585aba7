// SPDX-License-Identifier: Apache-2.0
#include "ucx/worker.h"

#include "base/last_error.h"

namespace memfabric::ucx {

Status Worker::open(abi::Context context) {
    abi::WorkerParams params{};
    params.field_mask = abi::WorkerParams::kThreadMode;
    params.thread_mode = abi::WorkerParams::kSerialized;
    abi::Result result = library_.calls().worker_create(context, &params, &handle_);
    if (result == abi::kOk) result = library_.calls().worker_get_efd(handle_, &fd_);
    if (result == abi::kOk) {
        inherited_sockets_.watch(fd_);
        return Status::Ok;
    }
    return fail(Status::NoResources, "UCX makes no worker: %s; its own log says more (UCX_LOG_LEVEL=info)",
                library_.text(result).c_str());
}

Worker::~Worker() {
    inherited_sockets_.watch(-1);
    if (handle_ != nullptr) library_.calls().worker_destroy(handle_);
}

bool Worker::arm() { return library_.calls().worker_arm(handle_) != abi::kBusy; }

Status Worker::address(std::string& bytes) {
    abi::Address address = nullptr;
    std::size_t size_bytes = 0;
    const abi::Result result = library_.calls().worker_get_address(handle_, &address, &size_bytes);
    if (result != abi::kOk) {
        return fail(Status::NoResources, "UCX has no address for others: %s", library_.text(result).c_str());
    }
    bytes.assign(reinterpret_cast<const char*>(address), size_bytes);
    library_.calls().worker_release_address(handle_, address);
    return Status::Ok;
}

}  // namespace memfabric::ucx
