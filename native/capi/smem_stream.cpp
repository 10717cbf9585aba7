// SPDX-License-Identifier: Apache-2.0
//
// Streams of C programs. The core knows all streams of the process by their handles; those made here are owned here.
#include <smem/host/smem.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/fork_guard.h"
#include "base/last_error.h"
#include "capi/control.h"
#include "capi/outcome.h"
#include "space/stream.h"

using namespace memfabric;
using namespace memfabric::capi;

namespace {

class OwnStreams {
public:
    static OwnStreams& process() {
        static OwnStreams& streams = *new OwnStreams;
        return streams;
    }

    void add(std::shared_ptr<Stream> stream) {
        const std::lock_guard lock(mutex_);
        const std::uint64_t handle = stream->handle();
        streams_.emplace(handle, std::move(stream));
    }

    std::shared_ptr<Stream> remove(std::uint64_t handle) {
        const std::lock_guard lock(mutex_);
        const auto found = streams_.find(handle);
        if (found == streams_.end()) return nullptr;
        std::shared_ptr<Stream> removed = std::move(found->second);
        streams_.erase(found);
        return removed;
    }

private:
    friend void memfabric::hold_across_forks<OwnStreams>();
    OwnStreams() { hold_across_forks<OwnStreams>(); }
    void before_fork() { mutex_.lock(); }
    void after_fork() { mutex_.unlock(); }
    void begin_in_child() { mutex_.unlock(); }  // each stream knows itself whose it is

    std::mutex mutex_;
    std::map<std::uint64_t, std::shared_ptr<Stream>> streams_;
};

std::uint64_t number_of(const void* stream) { return reinterpret_cast<std::uint64_t>(stream); }

int32_t unknown(const char* call, const void* stream) {
    return failed(call, fail(Status::InvalidParam, "%s: stream %p is closed, or never was one of smem_stream_create",
                             call, stream));
}

}  // namespace

int32_t smem_stream_create(void** stream) {
    if (stream == nullptr) return is_null("smem_stream_create", "stream");
    const Status status = control("init", 0).status;  // its failures have a log, like all others
    if (status != Status::Ok) return code_of(status);
    return outcome("smem_stream_create", [&] {
        const std::shared_ptr<Stream> made = Stream::make();
        OwnStreams::process().add(made);
        *stream = reinterpret_cast<void*>(made->handle());
        return Status::Ok;
    });
}

int32_t smem_stream_wait(void* stream) {
    if (stream == nullptr) return is_null("smem_stream_wait", "stream");
    const std::shared_ptr<Stream> found = Stream::find(number_of(stream));
    return found == nullptr ? unknown("smem_stream_wait", stream)
                            : outcome("smem_stream_wait", [&] { return found->wait(); });
}

int32_t smem_stream_destroy(void* stream) {
    if (stream == nullptr) return is_null("smem_stream_destroy", "stream");
    const std::shared_ptr<Stream> removed = OwnStreams::process().remove(number_of(stream));
    return removed == nullptr ? unknown("smem_stream_destroy", stream)
                              : outcome("smem_stream_destroy", [&] { return removed->close(); });
}
