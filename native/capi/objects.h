// SPDX-License-Identifier: Apache-2.0
//
// The objects behind the handles of C programs. Python owns them: what is here keeps the native half alive for calls
// that go straight to it.
#pragma once

#include <cstdint>
#include <variant>

#include "base/last_error.h"
#include "bridge/call.h"
#include "capi/control.h"
#include "capi/handles.h"
#include "capi/outcome.h"

namespace memfabric::capi {

using Pools = Handles<Space, 1>;
using Heaps = Handles<bridge::Heap, 2>;
using Engines = Handles<TransferEngine, 3>;

// A handle for what `function` of the control plane makes of the number of the handle and the arguments; NULL if it
// fails.
template <typename Object, typename Table, typename... Arguments>
void* create(Table& table, const char* call, const char* function, bridge::Call& answer, const Arguments&... given) {
    const std::uint64_t handle = table.reserve();
    if (handle == 0) {
        failed(call, fail(Status::NoResources, "%s: this process has %zu handles of this kind; destroy some", call,
                          Table::kMost));
        return nullptr;
    }
    answer = control(function, handle, given...);
    auto* const made = std::get_if<std::shared_ptr<Object>>(&answer.made);
    if (answer.status != Status::Ok || made == nullptr || *made == nullptr) {
        table.remove(handle);
        code_of(answer.status == Status::Ok ? Status::Error : answer.status);
        return nullptr;
    }
    table.publish(handle, *made);
    return reinterpret_cast<void*>(handle);
}

// Why there is no such handle: its module is not initialised, or it is none.
[[gnu::cold, gnu::noinline]] inline std::int32_t refuse(const char* call, const char* function, const void* handle) {
    return code_of(control(function, call, handle).status);
}

}  // namespace memfabric::capi
