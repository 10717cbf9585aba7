// SPDX-License-Identifier: Apache-2.0
//
// Barrier and all-gather, as ShareMemory inherits them.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/last_error.h"
#include "collectives/host_group.h"
#include "python_module/arguments/bytes_like.h"
#include "python_module/arguments/fast_method.h"
#include "python_module/arguments/number.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/callback.h"
#include "python_module/interpreter/failure_report.h"
#include "python_module/interpreter/gil.h"
#include "python_module/interpreter/raise.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

using Seconds = std::chrono::duration<double>;

// The exchange with other hosts, done by a Python function `exchange(size, complaint, ours, timeout_s) -> bytes`.
class PythonExchange final : public InterHostExchange {
public:
    explicit PythonExchange(nb::object exchange) : exchange_(std::move(exchange)) {}

    Status exchange(std::uint32_t bytes, const std::string& complaint, const std::byte* ours, std::byte* everybody,
                    Collective::Clock::time_point until) override {
        const auto take = [&](const nb::object& answer) {
            const nb::bytes all = nb::cast<nb::bytes>(answer);
            if (all.size() != std::size_t{bytes} * rank_size) {
                return fail(Status::Error, "the exchange between hosts gave %zu bytes instead of %zu", all.size(),
                            std::size_t{bytes} * rank_size);
            }
            if (bytes != 0) std::memcpy(everybody, all.c_str(), all.size());
            return Status::Ok;
        };
        const double left = Seconds(until - Collective::Clock::now()).count();
        if (const Status status = check_interpreter(); status != Status::Ok) return status;
        const AcquiredGil acquired;
        const nb::bytes ours_packed(reinterpret_cast<const char*>(ours), ours_bytes(bytes));
        return exchange_.call(take, bytes, complaint, ours_packed, left);
    }

    std::uint32_t members = 0;
    std::uint32_t rank_size = 0;

private:
    std::size_t ours_bytes(std::uint32_t bytes) const { return std::size_t{members} * bytes; }

    const Callback exchange_;
};

// `group` is null once this rank has left; calls that run meanwhile keep theirs, and the memory goes with the last one.
// Everything here is read and written under the GIL.
struct HostGroupObject {
    std::shared_ptr<HostGroup> group;
    std::shared_ptr<PythonExchange> inter_host;  // null: there is one host only
    std::chrono::nanoseconds timeout{};
    std::string object_name;

    ~HostGroupObject() {
        if (group != nullptr) group->leave();
    }

    Status check() const {
        if (group != nullptr) return group->check_usable();
        return fail(Status::InvalidParam, "%s is destroyed: the handle is closed", object_name.c_str());
    }
};

void init(HostGroupObject* self, int fd, U32 rank, U32 rank_size, std::vector<std::uint32_t> members,
          std::string object_name, double timeout_s, const nb::object& exchange) {
    std::shared_ptr<ControlPage> page;
    raise_if_failed(ControlPage::open(fd, rank_size, page));
    const HostGroup::Config config{rank, rank_size, std::move(members), object_name};
    std::unique_ptr<HostGroup> group;
    raise_if_failed(without_gil([&] { return HostGroup::join(std::move(page), config, group); }));
    std::shared_ptr<PythonExchange> inter_host;
    if (!exchange.is_none()) {
        inter_host = std::make_shared<PythonExchange>(exchange);
        inter_host->members = static_cast<std::uint32_t>(config.members.size());
        inter_host->rank_size = rank_size;
    }
    new (self) HostGroupObject{std::move(group), std::move(inter_host),
                               std::chrono::duration_cast<std::chrono::nanoseconds>(Seconds(timeout_s)),
                               std::move(object_name)};
}

Status meet(HostGroupObject& self) {
    if (const Status status = self.check(); status != Status::Ok) return status;
    const auto group = self.group;
    const auto inter_host = self.inter_host;
    return without_gil([&] { return group->barrier(self.timeout, inter_host.get()); });
}

int barrier(HostGroupObject& self) { return code_of("ShareMemory.barrier", meet(self)); }

[[noreturn]] void refuse_all_gather(Status status) {
    code_of("ShareMemory.all_gather", status);
    raise(status, "all_gather failed: " + last_error());
}

std::uint32_t checked_size(const HostGroupObject& self, std::size_t size_bytes) {
    if (const Status status = self.check(); status != Status::Ok) refuse_all_gather(status);
    if (size_bytes == 0 || size_bytes > kMaxGatherBytes) {
        refuse_all_gather(fail(Status::InvalidParam, "all_gather of %s: %zu bytes, expected 1 to %u",
                               self.object_name.c_str(), size_bytes, kMaxGatherBytes));
    }
    return static_cast<std::uint32_t>(size_bytes);
}

// Python's bytes object is filled in place: the result is copied once. `refuse(status)` raises.
template <typename Refuse, typename Gather>
nb::object gathered(std::uint32_t ranks, std::uint32_t bytes, Refuse refuse, Gather gather) {
    const nb::object result = nb::steal(PyBytes_FromStringAndSize(nullptr, Py_ssize_t{ranks} * bytes));
    if (!result.is_valid()) throw nb::python_error();
    auto* target = reinterpret_cast<std::byte*>(PyBytes_AS_STRING(result.ptr()));
    const Status status = without_gil([&] { return gather(target); });
    if (status != Status::Ok) refuse(status);
    return result;
}

const std::byte* data_of(const nb::bytes& data) { return reinterpret_cast<const std::byte*>(data.c_str()); }

nb::object all_gather(HostGroupObject& self, const BytesLike& data) {
    const std::uint32_t bytes = checked_size(self, data.view().size());
    const auto group = self.group;
    const auto inter_host = self.inter_host;
    return gathered(group->config().rank_size, bytes, refuse_all_gather, [&](std::byte* result) {
        return group->all_gather(reinterpret_cast<const std::byte*>(data.view().data()), bytes, result, self.timeout,
                                 inter_host.get());
    });
}

int subgroup_barrier(HostGroupObject& self, const std::string& key, U32 rank_size, U32 rank_id) {
    constexpr const char* kCall = "ShareMemory.subgroup_barrier";
    if (const Status status = self.check(); status != Status::Ok) return code_of(kCall, status);
    const auto group = self.group;
    return code_of(kCall, without_gil([&] {
                       Collective* subgroup = nullptr;
                       const Status status = group->subgroup(key, rank_size, rank_id, self.timeout, subgroup);
                       return status != Status::Ok ? status
                                                   : subgroup->barrier(Collective::Clock::now() + self.timeout);
                   }));
}

nb::object subgroup_all_gather(HostGroupObject& self, const std::string& key, U32 rank_size, U32 rank_id,
                               const nb::bytes& data) {
    raise_if_failed(self.check());
    const auto bytes = static_cast<std::uint32_t>(data.size());  // checked by who calls
    const auto group = self.group;
    Collective* subgroup = nullptr;
    raise_if_failed(without_gil([&] { return group->subgroup(key, rank_size, rank_id, self.timeout, subgroup); }));
    return gathered(
        rank_size, bytes, [](Status status) { raise(status); },
        [&](std::byte* result) {
            return subgroup->all_gather(data_of(data), bytes, result, Collective::Clock::now() + self.timeout);
        });
}

std::pair<std::uintptr_t, std::uintptr_t> departure_words(const HostGroupObject& self) {
    raise_if_failed(self.check());
    const HostLiveness& liveness = self.group->liveness();
    return {reinterpret_cast<std::uintptr_t>(&liveness.departures_word()),
            reinterpret_cast<std::uintptr_t>(&liveness.declared_word())};
}

void leave(HostGroupObject& self) {
    auto group = std::exchange(self.group, nullptr);
    auto inter_host = std::exchange(self.inter_host, nullptr);
    if (group == nullptr) return;
    const ReleasedGil released;
    group->leave();
    group.reset();
}

int create_control_page(U32 rank_size) {
    int fd = -1;
    raise_if_failed(ControlPage::create(rank_size, fd));
    return fd;
}

constexpr const char* kAllGatherDoc =
    "Everybody's `local_data` in order of rank, as one bytes object; all ranks bring equally many, 1 to 65536.\n\n"
    "Raises RuntimeError when it fails, for the reasons of barrier(); the last error says more.";

}  // namespace

std::shared_ptr<bridge::Heap> heap_of(nb::handle object) {
    HostGroupObject* heap = nullptr;
    if (!nb::try_cast(object, heap) || heap->group == nullptr) return nullptr;
    return std::make_shared<bridge::Heap>(heap->group, heap->inter_host, heap->timeout);
}

void bind_host_group(nb::module_& module) {
    module.def("create_control_page", &create_control_page, nb::arg("rank_size"),
               "A descriptor of new memory in which that many ranks can meet; the caller's to close.");
    nb::class_<HostGroupObject> group(
        module, "HostGroup",
        "The ranks of one object on this host: barrier and all-gather in shared memory, without the store.");
    def_fast<&all_gather, 1>(group, {"all_gather", {"local_data"}, 1, kAllGatherDoc});
    group
        .def("__init__", &init, nb::arg("fd"), nb::arg("rank"), nb::arg("rank_size"), nb::arg("members"),
             nb::arg("object_name"), nb::arg("timeout_s"), nb::arg("exchange").none(),
             "Join it: `fd` is the control page of this host, `members` are its ranks in order. `exchange(size,\n"
             "complaint, ours, timeout_s) -> bytes` exchanges with the other hosts, None if there are none. Raises\n"
             "FabricError.")
        .def("barrier", &barrier,
             "Wait until every rank of the object has called it.\n\n"
             "Returns 0; -2004 if ranks did not arrive within the operation time-out, and the last error names them "
             "(the\n"
             "call has not happened then: call it again); -2014 at once when a rank has died or destroyed the object;\n"
             "-2000 if some ranks called all_gather instead, or the handle is closed.")
        .def(
            "_barrier", [](HostGroupObject& self) { raise_if_failed(meet(self)); }, "barrier(). Raises FabricError.")
        .def("_subgroup_barrier", &subgroup_barrier, nb::arg("key"), nb::arg("rank_size"), nb::arg("rank_id"))
        .def("_subgroup_all_gather", &subgroup_all_gather, nb::arg("key"), nb::arg("rank_size"), nb::arg("rank_id"),
             nb::arg("data"))
        .def(
            "_declare_gone",
            [](HostGroupObject& self, U32 rank, const std::string& reason) {
                if (self.group != nullptr) self.group->declare_gone(rank, reason);
            },
            nb::arg("rank"), nb::arg("reason"),
            "That rank, of this host or another, is gone: collectives that need it fail with -2014 and this reason.")
        .def(
            "_take_back",
            [](HostGroupObject& self, U32 rank) {
                if (self.group != nullptr) self.group->take_back(rank);
            },
            nb::arg("rank"), "That rank was only silent, and is there again: it counts as gone no more.")
        .def(
            "_complaint",
            [](const HostGroupObject& self, U32 rank) {
                return self.group != nullptr ? self.group->complaint(rank) : std::string();
            },
            nb::arg("rank"), "Why that rank is gone, and what to do about it.")
        .def(
            "_set_timeout",
            [](HostGroupObject& self, double timeout_s) {
                self.timeout = std::chrono::duration_cast<std::chrono::nanoseconds>(Seconds(timeout_s));
            },
            nb::arg("timeout_s"), "How long each later call waits for the others.")
        .def_prop_ro("_departure_words", &departure_words,
                     "The addresses of two words; one of them is not 0 once a rank of the object is gone.")
        .def("_leave", &leave, "This rank takes part no more; the others' collectives fail. Idempotent.");
}

}  // namespace memfabric::python
