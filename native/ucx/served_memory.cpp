// SPDX-License-Identifier: Apache-2.0
#include "ucx/served_memory.h"

#include <utility>

namespace memfabric::ucx {

Status ServedMemory::serve(std::byte* base, std::size_t size_bytes, const Options& options,
                           std::unique_ptr<ServedMemory>& served) {
    std::unique_ptr<ServedMemory> made(new ServedMemory);
    made->for_initiators_.base = reinterpret_cast<std::uint64_t>(base);
    made->for_initiators_.size_bytes = size_bytes;
    Status status = Runtime::acquire(options, made->runtime_);
    if (status == Status::Ok) status = made->runtime_->progress_thread(made->thread_);
    if (status == Status::Ok) {
        status = made->runtime_->context().map(base, size_bytes, made->memory_, made->for_initiators_.key);
    }
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

ServedMemory::~ServedMemory() {
    if (runtime_ != nullptr && runtime_->in_forked_child()) {
        if (worker_ != nullptr) worker_.release()->abandon();
        return;
    }
    if (worker_ != nullptr) thread_->end(std::move(worker_));
    if (memory_ != nullptr) runtime_->context().unmap(memory_);
}

}  // namespace memfabric::ucx
