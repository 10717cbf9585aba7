// SPDX-License-Identifier: Apache-2.0
//
// One frame out, one frame in, on a stream socket, by the thread that needs the answer.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace memfabric::store {

double now_s();  // on the monotonic clock, as Python's time.monotonic()

// Does not own the descriptor. Whoever else uses the socket waits until this is over.
class FrameExchange {
public:
    enum class End {
        kAnswered,
        kLost,         // `reason()` says why; the store may have acted on the frame
        kLate,         // the moment passed; the answer may still come, so the socket must be closed
        kInterrupted,  // a signal came: let its handler run, then call `run` again
    };

    // `until`: seconds on the monotonic clock.
    FrameExchange(int fd, std::string_view frame, double until, std::size_t longest_answer_bytes);

    End run();

    std::string_view answer() const;  // the payload
    const std::string& reason() const { return reason_; }

private:
    End send_all();
    End receive_all();
    End lost(std::string reason);
    End after_failed_call();
    End wait_for(short event);
    bool read_announcement();

    int fd_;
    std::string_view unsent_;
    double until_;
    std::size_t longest_answer_bytes_;
    std::string reason_;
    std::size_t received_bytes_ = 0;
    std::size_t expected_bytes_ = 0;     // header included; 0 until it is known
    std::unique_ptr<char[]> long_;       // for an answer that does not fit below
    std::array<char, 16 * 1024> short_;  // not initialised on purpose: most answers touch its first bytes only
};

}  // namespace memfabric::store
