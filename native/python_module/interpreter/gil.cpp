// SPDX-License-Identifier: Apache-2.0
#include "python_module/interpreter/gil.h"

#include <cxxabi.h>
#include <unistd.h>

#include <cstdint>
#include <optional>

#include "base/fork_guard.h"
#include "base/last_error.h"

namespace memfabric::python {
namespace {

[[noreturn]] void sleep_for_ever() {
    for (;;) pause();
}

void take_back(PyThreadState* state) {
    try {
        PyEval_RestoreThread(state);
    } catch (const abi::__forced_unwind&) {
        sleep_for_ever();
    }
}

}  // namespace

bool is_main_thread() {
    static thread_local std::optional<std::uint32_t> asked_after;
    static thread_local bool answer = false;
    if (const std::uint32_t forks = ForkGuard::forks(); asked_after != forks) [[unlikely]] {
        asked_after = forks;
        answer = gettid() == getpid();
    }
    return answer;
}

Status check_interpreter() {
    if (Py_IsInitialized() != 0) [[likely]]
        return Status::Ok;
    return fail(Status::NotInit, "the interpreter of this process has ended, and with it everything of this library");
}

ReleasedGil::ReleasedGil(Signals signals)
    : Interruption(signals == kMayInterrupt && is_main_thread()), state_(PyEval_SaveThread()) {}

ReleasedGil::~ReleasedGil() { take_back(state_); }

bool ReleasedGil::look() {
    if (raised_) return true;
    take_back(state_);
    raised_ = PyErr_CheckSignals() != 0;
    state_ = PyEval_SaveThread();
    return raised_;
}

// PyGILState_Ensure would do, but for forks: to make a state for a thread it takes a lock of the interpreter's that has
// nothing to do with the GIL, and the child of a fork in that moment waits for it for ever (Python before 3.12).
AcquiredGil::AcquiredGil() {
    if (PyGILState_GetThisThreadState() == nullptr) {
        const NoForks whole;
        made_ = PyThreadState_New(PyInterpreterState_Main());
    }
    try {
        if (made_ != nullptr) {
            PyEval_RestoreThread(made_);
        } else {
            before_ = PyGILState_Ensure();
        }
    } catch (const abi::__forced_unwind&) {
        sleep_for_ever();
    }
}

AcquiredGil::~AcquiredGil() {
    if (made_ != nullptr) {
        PyThreadState_Clear(made_);
        PyThreadState_DeleteCurrent();
    } else {
        PyGILState_Release(before_);
    }
}

PyObject* call_from_core(PyObject* function, PyObject* arguments) {
    try {
        return PyObject_Call(function, arguments, nullptr);
    } catch (const abi::__forced_unwind&) {
        sleep_for_ever();
    }
}

}  // namespace memfabric::python
