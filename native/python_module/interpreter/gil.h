// SPDX-License-Identifier: Apache-2.0
//
// Letting go of the interpreter lock and taking it back, in a process whose interpreter may end meanwhile.
//
// A daemon thread that wants the lock back while the interpreter is being finalised does not get it: CPython ends that
// thread on the spot (or, from 3.14 on, lets it sleep for ever). Ending it unwinds its stack through destructors, which
// aborts the process. So here such a thread sleeps for ever in every version; the process ends without it.
#pragma once

#include <nanobind/nanobind.h>

#include "base/interruption.h"
#include "base/status.h"

namespace memfabric::python {

// While one exists, this thread does without the lock. On the program's main thread waits of the core let signal
// handlers run; what a handler raises is pending when the lock is back, and the wait has returned Interrupted.
class ReleasedGil final : private Interruption {
public:
    enum Signals { kMayInterrupt, kWait };  // in a destructor they wait: an exception may be on its way already

    explicit ReleasedGil(Signals signals = kMayInterrupt);
    ~ReleasedGil();

private:
    bool look() override;

    PyThreadState* state_;
    bool raised_ = false;
};

// Signal handlers run on the main thread. After a fork that is the thread which forked.
bool is_main_thread();

// NotInit once the interpreter of this process is on its way out: the lock is nobody's any more. A C++ program's static
// objects may still be destroyed afterwards, also those of libraries that a Python program has loaded.
Status check_interpreter();

// Takes the lock on any thread, one of ours too, of an interpreter that is there.
class AcquiredGil {
public:
    AcquiredGil();
    ~AcquiredGil();
    AcquiredGil(const AcquiredGil&) = delete;
    AcquiredGil& operator=(const AcquiredGil&) = delete;

private:
    PyThreadState* made_ = nullptr;  // for a thread that Python does not know, until we leave
    PyGILState_STATE before_{};      // for one that it knows
};

// `function(*arguments)`, from the core's depths: an interpreter that ends during the call must not unwind them. A new
// reference, or nullptr and an exception is set.
PyObject* call_from_core(PyObject* function, PyObject* arguments);

// Runs the call without the lock.
template <typename Call>
Status without_gil(Call call) {
    const ReleasedGil released;
    return call();
}

// The same for calls that always succeed and are finished even if a signal handler raises meanwhile.
template <typename Call>
void finish_without_gil(Call call) {
    {
        const ReleasedGil released;
        call();
    }
    if (PyErr_Occurred() != nullptr) throw nanobind::python_error();
}

}  // namespace memfabric::python
