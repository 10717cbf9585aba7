// SPDX-License-Identifier: Apache-2.0
//
// A call from the C library into the control plane, by name and with plain values: the C library knows no Python, the
// Python module knows no C library, and both know this.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/api.h"
#include "base/status.h"
#include "collectives/host_group.h"
#include "space/space.h"
#include "transfer/engine.h"

namespace memfabric::bridge {

// The ranks of a Share Memory object, as its collectives need them.
struct Heap {
    std::shared_ptr<HostGroup> group;
    std::shared_ptr<InterHostExchange> inter_host;  // nullptr: there is one host only
    std::chrono::nanoseconds timeout{};
};

struct Bytes {
    std::span<const std::byte> data;
};
// A few, held without memory of their own.
class Texts {
public:
    static constexpr std::size_t kMost = 7;

    void push_back(std::string_view text) { texts_[count_++] = text; }
    void clear() { count_ = 0; }
    auto begin() const { return texts_.begin(); }
    auto end() const { return texts_.begin() + count_; }

private:
    std::array<std::string_view, kMost> texts_;
    std::size_t count_ = 0;
};

// None, an integer, a str, bytes, or a tuple of str.
using Argument = std::variant<std::monostate, std::uint64_t, std::int64_t, std::string_view, Bytes, Texts>;
// What a function that creates something has made.
using Made =
    std::variant<std::monostate, std::shared_ptr<Space>, std::shared_ptr<Heap>, std::shared_ptr<TransferEngine>>;

struct Call {
    const char* function;
    std::span<const Argument> arguments;

    // The answer. It is a failure until the control plane says otherwise, whatever happens on the way.
    Status status = Status::Error;
    std::vector<std::int64_t> numbers;
    std::string bytes;
    Made made;
};

// Carries a call out, on the calling thread, which holds no lock of the interpreter or does. Sets the last error if it
// fails. Never throws.
using Carry = void (*)(Call& call);

MF_API void serve(Carry carry);  // the control plane is there
MF_API Carry served();           // nullptr: it is not

// Makes every table of the process that is locked while it forks. Who wants to take another lock before all of these
// registers its own handler afterwards: they run in the reverse order.
MF_API void make_fork_handlers();

}  // namespace memfabric::bridge
