// SPDX-License-Identifier: Apache-2.0
#include "tests/assertions.h"

#include <algorithm>
#include <cstring>
#include <ostream>
#include <sstream>

#include "base/last_error.h"
#include "memory/exported_memory.h"

namespace memfabric {
namespace {

const char* name_of(Status status) {
    switch (status) {
        case Status::Ok:
            return "Ok";
        case Status::Error:
            return "Error";
        case Status::InvalidParam:
            return "InvalidParam";
        case Status::MallocFailed:
            return "MallocFailed";
        case Status::NoResources:
            return "NoResources";
        case Status::NotStarted:
            return "NotStarted";
        case Status::Timeout:
            return "Timeout";
        case Status::RepeatInvoke:
            return "RepeatInvoke";
        case Status::Duplicated:
            return "Duplicated";
        case Status::NotExist:
            return "NotExist";
        case Status::NotInit:
            return "NotInit";
        case Status::ResourceInUse:
            return "ResourceInUse";
        case Status::PartialFailed:
            return "PartialFailed";
        case Status::NotConnected:
            return "NotConnected";
        case Status::BufferTooSmall:
            return "BufferTooSmall";
        case Status::Interrupted:
            return "Interrupted";
    }
    return "no status";
}

bool same(std::span<const std::byte> one, std::span<const std::byte> other, std::size_t at, std::size_t size) {
    return std::memcmp(one.data() + at, other.data() + at, size) == 0;
}

// After every test: addresses that are left here lead later tests to memory that has gone.
class ExportsEnd final : public ::testing::EmptyTestEventListener {
    void OnTestEnd(const ::testing::TestInfo&) override {
        for (const ExportedRange& range : ExportedMemory::process().all()) {
            ADD_FAILURE() << "0x" << std::hex << range.start << " to 0x" << range.end << " can still be exported";
            ExportedMemory::process().remove(range.id);
        }
    }
};
[[maybe_unused]] const bool exports_are_watched = [] {
    ::testing::UnitTest::GetInstance()->listeners().Append(new ExportsEnd);
    return true;
}();

[[noreturn]] void leave_test(const std::string& why, const std::source_location& where) {
    const int line = static_cast<int>(where.line());
    ADD_FAILURE_AT(where.file_name(), line) << why;
    // GoogleTest takes this for a failure that was reported already.
    throw ::testing::AssertionException(
        {::testing::TestPartResult::kFatalFailure, where.file_name(), line, why.c_str()});
}

}  // namespace

void PrintTo(Status status, std::ostream* out) { *out << name_of(status) << " (" << static_cast<int>(status) << ")"; }

namespace tests {

void require(bool holds, std::source_location where) {
    if (!holds) leave_test(std::string("what ") + where.function_name() + " needs does not hold", where);
}

void require_ok(Status status, std::source_location where) {
    if (status != Status::Ok) leave_test(std::string(name_of(status)) + ": " + last_error(), where);
}

::testing::AssertionResult contains(const std::string& text, const std::string& part) {
    if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << '"' << text << "\" does not contain \"" << part << '"';
}

::testing::AssertionResult same_bytes(std::span<const std::byte> found, std::span<const std::byte> wanted) {
    if (found.size() != wanted.size()) {
        return ::testing::AssertionFailure() << found.size() << " bytes instead of " << wanted.size();
    }
    // Runs of bytes that differ tell whose they are: a page, a chunk, a few bytes of something else.
    constexpr std::size_t kMostRuns = 8;
    constexpr std::size_t kMostShown = 16;
    std::ostringstream runs;
    std::size_t count = 0;
    constexpr std::size_t kBlock =
        4096;  // compared at once: byte by byte, a sanitizer would need seconds for megabytes
    for (std::size_t at = 0; at < found.size(); ++at) {
        while (at % kBlock == 0 && at + kBlock <= found.size() && same(found, wanted, at, kBlock)) at += kBlock;
        if (at == found.size()) break;
        if (found[at] == wanted[at]) continue;
        const std::size_t begin = at;
        while (at < found.size() && found[at] != wanted[at]) ++at;
        if (++count > kMostRuns) continue;
        runs << "\n  [" << begin << ", " << at << "):";
        for (std::size_t i = begin; i < std::min(at, begin + kMostShown); ++i) {
            runs << ' ' << std::hex << std::to_integer<int>(found[i]) << '/' << std::to_integer<int>(wanted[i])
                 << std::dec;
        }
    }
    if (count == 0) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << count << " runs of bytes differ at "
                                         << static_cast<const void*>(found.data()) << " (found/wanted):" << runs.str();
}

::testing::AssertionResult says(const std::string& part) {
    const std::string sentence = take_last_error();
    if (!part.empty()) return contains(sentence, part);
    if (sentence.empty()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "there is a sentence though nothing failed: " << sentence;
}

}  // namespace tests
}  // namespace memfabric
