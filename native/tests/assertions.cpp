// SPDX-License-Identifier: Apache-2.0
#include "tests/assertions.h"

#include <ostream>

#include "base/last_error.h"

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

::testing::AssertionResult says(const std::string& part) {
    const std::string sentence = take_last_error();
    if (!part.empty()) return contains(sentence, part);
    if (sentence.empty()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "there is a sentence though nothing failed: " << sentence;
}

}  // namespace tests
}  // namespace memfabric
