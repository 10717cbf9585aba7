// SPDX-License-Identifier: Apache-2.0
#include "python_module/interpreter/gil.h"

#include <cxxabi.h>
#include <pthread.h>
#include <unistd.h>

#include "base/fork_guard.h"

namespace memfabric::python {
namespace {

// Signal handlers run on the main thread. After a fork that is the thread which forked.
bool is_main_thread() {
    static thread_local int answer = -1;
    static const int fork_handler = pthread_atfork(nullptr, nullptr, [] { answer = 1; });
    static_cast<void>(fork_handler);
    if (answer < 0) [[unlikely]]
        answer = gettid() == getpid() ? 1 : 0;
    return answer == 1;
}

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
