// SPDX-License-Identifier: Apache-2.0
#include "ucx/served_memory.h"

#include <utility>

namespace memfabric::ucx {

Status ServedMemory::serve(std::byte* base, std::size_t size_bytes, const Options& options,
                           std::unique_ptr<ServedMemory>& served) {
    std::unique_ptr<ServedMemory> made(new ServedMemory);
    Status status = Runtime::acquire(options, made->runtime_);
    if (status == Status::Ok) status = made->runtime_->progress_thread(made->thread_);
    if (status == Status::Ok) status = made->add(base, size_bytes);
    std::unique_ptr<Worker> worker;
    if (status == Status::Ok) made->for_initiators_.version = made->runtime_->context().library().version();
    if (status == Status::Ok) status = made->runtime_->context().make_worker(worker);
    if (status == Status::Ok) status = worker->address(made->for_initiators_.worker_address);
    if (status == Status::Ok) status = made->thread_->adopt(*worker);
    if (status != Status::Ok) return status;
    made->worker_ = std::move(worker);
    served = std::move(made);
    return Status::Ok;
}

Status ServedMemory::add(std::byte* base, std::size_t size_bytes) {
    RemoteRegion region{reinterpret_cast<std::uint64_t>(base), size_bytes, {}};
    abi::Memory memory = nullptr;
    const Status status = runtime_->context().map(base, size_bytes, memory, region.key);
    if (status != Status::Ok) return status;
    registered_.push_back(memory);
    for_initiators_.regions.push_back(std::move(region));
    return Status::Ok;
}

ServedMemory::~ServedMemory() {
    if (runtime_ != nullptr && runtime_->in_forked_child()) {
        if (worker_ != nullptr) worker_.release()->abandon();
        return;
    }
    if (worker_ != nullptr) thread_->end(std::move(worker_));
    for (abi::Memory memory : registered_) runtime_->context().unmap(memory);
}

}  // namespace memfabric::ucx
