// SPDX-License-Identifier: Apache-2.0
//
// The copies, as BigMemory inherits them.
//
// copy_data goes around nanobind. Measured with Python 3.11 on a Zen 3 virtual machine: 1 byte with five positional
// arguments takes 120 ns like this, of which the core takes 19, and 155 ns through nanobind; 4 KiB with keywords 185
// against 257. The bar is 350 ns for 4 KiB where memcpy takes 130; looking up BmCopyType.H2G takes 90 of the rest.
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "base/notice.h"
#include "copy/type.h"
#include "python_module/arguments/fast_arguments.h"
#include "python_module/arguments/fast_method.h"
#include "python_module/arguments/number.h"
#include "python_module/arguments/number_list.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/failure_report.h"
#include "python_module/interpreter/gil.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

// Giving the GIL away and taking it back costs more than copying this much.
constexpr std::uint64_t kKeepGilBytes = 64 * 1024;

// A stream that nobody uses is a mistake of the program's, which it learns once.
void check_stream(const char* call, std::uint64_t flags, std::uint64_t stream) {
    static std::atomic<bool> told{false};
    if (stream == 0 || (flags & kFlagStream) != 0 || told.exchange(true)) return;
    notice("%s: a stream was given and is ignored, because flags does not have 4 (use stream). Said once.", call);
}

PyObject* copy_data(PyObject* self, PyObject* const* arguments, Py_ssize_t positional_count, PyObject* keyword_names) {
    static const Signature<6> signature("copy_data", {"src_ptr", "dst_ptr", "size", "type", "flags", "stream"}, 4);
    std::array<PyObject*, 6> slots{};
    if (!sort_arguments(signature, arguments, positional_count, keyword_names, slots)) return nullptr;
    std::uint64_t source = 0;
    std::uint64_t target = 0;
    std::uint64_t size = 0;
    std::uint32_t type = 0;
    std::uint64_t flags = 0;
    std::uint64_t stream = 0;
    if (!to_number(slots[0], source) || !to_number(slots[1], target) || !to_number(slots[2], size) ||
        !to_number(slots[3], type) || (slots[4] != nullptr && !to_number(slots[4], flags)) ||
        (slots[5] != nullptr && !to_number(slots[5], stream))) [[unlikely]] {
        complain_about_first(signature, slots, /*first=*/0, /*narrow=*/3);
        return nullptr;
    }
    if (!nb::inst_ready(self)) [[unlikely]] {
        PyErr_SetString(PyExc_TypeError, "copy_data(): __init__ of the base class was not called");
        return nullptr;
    }
    if (slots[5] != nullptr) check_stream("BigMemory.copy_data", flags, stream);
    Space& space = *nb::inst_ptr<SpaceObject>(self)->space;
    std::optional<Status> status;
    if (size <= kKeepGilBytes && !is_queued(flags)) {
        const Piece piece{reinterpret_cast<std::byte*>(target), reinterpret_cast<const std::byte*>(source), size};
        status = space.copy_if_near(piece, type);
    }
    if (!status) status = without_gil([&] { return space.copy(source, target, size, type, flags, stream); });
    return code_object("BigMemory.copy_data", *status);
}

int copy_data_batch(SpaceObject& self, const NumberList& sources, const NumberList& targets, const NumberList& sizes,
                    U64 count, U32 type, U64 flags, U64 stream) {
    check_stream("BigMemory.copy_data_batch", flags, stream);
    const BatchArrays batch{sources.numbers(), targets.numbers(), sizes.numbers()};
    return code_of("BigMemory.copy_data_batch",
                   without_gil([&] { return self.space->copy_batch(batch, count, type, flags, stream); }));
}

int copy_data_2d(SpaceObject& self, U64 source, U64 source_pitch, U64 target, U64 target_pitch, U64 width, U64 height,
                 U32 type, U64 flags) {
    const Rectangle rectangle{reinterpret_cast<std::byte*>(target.value),       target_pitch,  //
                              reinterpret_cast<const std::byte*>(source.value), source_pitch, width, height};
    const bool small = width <= kKeepGilBytes && height <= kKeepGilBytes && width * height <= kKeepGilBytes;
    std::optional<Status> status;
    if (small && !is_queued(flags)) status = self.space->copy_if_near(rectangle, type);
    if (!status) status = without_gil([&] { return self.space->copy_2d(rectangle, type, flags); });
    return code_of("BigMemory.copy_data_2d", *status);
}

int wait(SpaceObject& self) {
    return code_of("BigMemory.wait", without_gil([&] { return self.space->wait(); }));
}

std::uint32_t rank_of(SpaceObject& self, U64 address) {
    const std::uint32_t rank = self.space->rank_of(address);
    if (rank == kNoRank) code_of("BigMemory.get_rank_id_by_gva", Status::InvalidParam);
    return rank;
}

constexpr const char* kCopyDataDoc =
    "copy_data($self, src_ptr, dst_ptr, size, type, flags=0, stream=0)\n--\n\n"
    "Copy `size` bytes from address `src_ptr` to address `dst_ptr`.\n\n"
    "type: a BmCopyType; it says what each side must be: L local, H local host, G global, GH global host memory. AUTO\n"
    "takes any two sides of which one is global. A global range must lie in one rank's memory.\n"
    "flags: 1 = asynchronous, ordered with this object's other asynchronous copies: see wait(); 4 = queue it on "
    "`stream`\n"
    "(a Stream or its handle). Otherwise the data is in place when the call returns.\n\n"
    "Returns 0; -2000 for a bad address, range, size, type, stream or a closed handle; -2003 before join() and after\n"
    "leave(); -2014 if the rank that owns the memory is not there; -2012 if the rank that was read from went away\n"
    "meanwhile, so that the target is undefined; -2008 in a forked child. The last error says more.";

constexpr const char* kCopyBatchDoc =
    "Copy `count` independent pieces: sizes[i] bytes from src_addrs[i] to dst_addrs[i].\n\n"
    "The three are lists or tuples of int, or one-dimensional integer buffers such as numpy arrays (64-bit ones are "
    "used\n"
    "without conversion), of exactly `count` items, 1 to 1048576. All pieces are checked before the first byte moves.\n"
    "type, flags and stream are those of copy_data().\n\n"
    "Returns 0, or the codes of copy_data(); after -2012 and -2014 some pieces may have been written.";

constexpr const char* kCopy2dDoc =
    "Copy `height` rows of `width` bytes; rows start `spitch` bytes apart in the source and `dpitch` in the target.\n\n"
    "Both pitches must be at least `width`. type and flags are those of copy_data(), without streams.\n\n"
    "Returns 0, or the codes of copy_data().";

constexpr const char* kWaitDoc =
    "Wait for all asynchronous copies of this object.\n\n"
    "Returns 0, or the code of the first one that failed since the last wait() (and sets the last error); -2003 "
    "before\n"
    "join() and after leave(); -2000 for a closed handle; -2008 in a forked child.";

constexpr const char* kRankDoc =
    "The rank whose slot contains the global address `gva`, whether or not that rank has joined.\n\n"
    "Returns 4294967295 if the address is outside the object's range or the handle is closed.";

}  // namespace

void bind_copies(nb::class_<SpaceObject>& space) {
    // CPython keeps the pointer to this table.
    static PyMethodDef copy_data_method{"copy_data", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(copy_data)),
                                        METH_FASTCALL | METH_KEYWORDS, kCopyDataDoc};
    auto* type = reinterpret_cast<PyTypeObject*>(space.ptr());
    space.attr("copy_data") = nb::steal(PyDescr_NewMethod(type, &copy_data_method));
    def_fast<&copy_data_batch, 7>(
        space,
        {"copy_data_batch", {"src_addrs", "dst_addrs", "sizes", "count", "type", "flags", "stream"}, 5, kCopyBatchDoc});
    def_fast<&copy_data_2d, 8>(space, {"copy_data_2d",
                                       {"src_ptr", "spitch", "dst_ptr", "dpitch", "width", "height", "type", "flags"},
                                       7,
                                       kCopy2dDoc});
    def_fast<&wait, 0>(space, {"wait", {}, 0, kWaitDoc});
    def_fast<&rank_of, 1>(space, {"get_rank_id_by_gva", {"gva"}, 1, kRankDoc});
}

}  // namespace memfabric::python
