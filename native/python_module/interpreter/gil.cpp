// SPDX-License-Identifier: Apache-2.0
#include "python_module/interpreter/gil.h"

#include <cxxabi.h>
#include <pthread.h>
#include <unistd.h>

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

AcquiredGil::AcquiredGil() : state_{} {
    try {
        state_ = PyGILState_Ensure();
    } catch (const abi::__forced_unwind&) {
        sleep_for_ever();
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
