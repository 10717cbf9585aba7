// SPDX-License-Identifier: Apache-2.0
#include "capi/control.h"

#include <pthread.h>

#include <cerrno>
#include <csignal>
#include <ctime>

#include "base/last_error.h"
#include "capi/interpreter.h"

namespace memfabric::capi {
namespace {

class NoPipeSignal {
public:
    NoPipeSignal() {
        sigset_t pending;
        sigpending(&pending);
        was_pending_ = sigismember(&pending, SIGPIPE) == 1;
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    ~NoPipeSignal() {
        const int error = errno;
        if (!was_pending_) {
            const timespec at_once{};
            while (sigtimedwait(&pipe_, nullptr, &at_once) == -1 && errno == EINTR) {
            }
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = error;
    }
    NoPipeSignal(const NoPipeSignal&) = delete;
    NoPipeSignal& operator=(const NoPipeSignal&) = delete;

private:
    bool was_pending_;
    sigset_t pipe_;
    sigset_t before_;
};

}  // namespace

void carry_out(bridge::Call& call) {
    const NoPipeSignal no_pipe_signal;
    bridge::Carry carry = bridge::served();
    if (carry == nullptr) [[unlikely]] {
        call.status = start_control_plane();
        if (call.status != Status::Ok) return;
        call.status = Status::Error;
        carry = bridge::served();
    }
    carry(call);
}

Status check_numbers(const bridge::Call& answer, std::size_t count) {
    if (answer.status != Status::Ok || answer.numbers.size() == count) return answer.status;
    return fail(Status::Error,
                "%s answered with %zu numbers, expected %zu: libmf_smem.so and the Python package memfabric_hybrid are "
                "of different versions",
                answer.function, answer.numbers.size(), count);
}

}  // namespace memfabric::capi
