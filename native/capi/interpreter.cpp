// SPDX-License-Identifier: Apache-2.0
//
// Python's functions are looked up at run time: the library needs no libpython to be linked with, and uses the one that
// the process has.
#define PY_SSIZE_T_CLEAN
#include "capi/interpreter.h"

#include <Python.h>
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>

#include "base/fork_guard.h"
#include "base/last_error.h"
#include "bridge/call.h"
#include "capi/environment.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // newer versions have newer names, and still these

namespace memfabric::capi {
namespace {

constexpr const char* kBridgeModule = "memfabric_hybrid.capi_bridge";

// Every function of Python that is called here.
// clang-format off
#define MF_PYTHON_FUNCTIONS(use) \
    use(Py_GetVersion) \
    use(Py_IsInitialized) \
    use(Py_InitializeFromConfig) \
    use(PyConfig_InitIsolatedConfig) \
    use(PyConfig_SetBytesString) \
    use(PyConfig_Clear) \
    use(PyStatus_Exception) \
    use(PyEval_SaveThread) \
    use(PyGILState_Ensure) \
    use(PyGILState_Release) \
    use(PyGILState_GetThisThreadState) \
    use(PyInterpreterState_Main) \
    use(PyThreadState_New) \
    use(PyThreadState_Clear) \
    use(PyThreadState_DeleteCurrent) \
    use(PyEval_RestoreThread) \
    use(PyImport_ImportModule) \
    use(PyErr_Fetch) \
    use(PyErr_NormalizeException) \
    use(PyErr_Clear) \
    use(PyObject_Str) \
    use(PyUnicode_AsUTF8AndSize) \
    use(PyUnicode_DecodeFSDefault) \
    use(PySys_GetObject) \
    use(PyList_Append) \
    use(PyOS_BeforeFork) \
    use(PyOS_AfterFork_Parent) \
    use(PyOS_AfterFork_Child) \
    use(PyGILState_Check) \
    use(Py_DecRef)
// clang-format on

struct Python {
#define MF_MEMBER(function) decltype(&::function) function = nullptr;
    MF_PYTHON_FUNCTIONS(MF_MEMBER)
#undef MF_MEMBER
};

Python python;           // filled once, before anybody uses it
std::mutex start_mutex;  // for loading and starting; never held while the interpreter's lock is waited for
std::atomic<bool> is_loaded{false};

const char* look_up(void* library) {
#define MF_LOOK_UP(function)                                                              \
    python.function = reinterpret_cast<decltype(&::function)>(dlsym(library, #function)); \
    if (python.function == nullptr) return #function;
    MF_PYTHON_FUNCTIONS(MF_LOOK_UP)
#undef MF_LOOK_UP
    return nullptr;
}

// Where Python's functions are: in this process already, or in the library of the environment. Global, because Python's
// own modules look for them there.
bool load_python(const Environment& environment, void*& library, std::string& tried) {
    library = RTLD_DEFAULT;  // which is no pointer to anything
    if (dlsym(library, "Py_InitializeFromConfig") != nullptr) return true;
    library = dlopen(MF_PYTHON_LIBRARY, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    if (library != nullptr) return true;
    for (const std::string& file : environment.python_libraries) {
        library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
        if (library != nullptr) return true;
        tried += tried.empty() ? "" : "; ";
        tried += dlerror();
    }
    return false;
}

Status load(const Environment& environment) {
    void* library = nullptr;
    std::string tried;
    if (!load_python(environment, library, tried)) {
        return fail(Status::Error,
                    "%s cannot be loaded, which the interpreter %s should come with: %s. Use a Python with its shared "
                    "library (Debian, Ubuntu: libpython%s; others: configure --enable-shared)",
                    MF_PYTHON_LIBRARY, environment.program.c_str(), tried.c_str(), MF_PYTHON_VERSION);
    }
    if (const char* const missing = look_up(library)) {
        return fail(Status::Error, "this process's Python has no function %s; %s was built for Python %s", missing,
                    environment.library.c_str(), MF_PYTHON_VERSION);
    }
    const std::string version = python.Py_GetVersion();
    if (!version.starts_with(MF_PYTHON_VERSION ".")) {
        return fail(Status::Error,
                    "this process has Python %.20s, but %s was built for Python %s: install memfabric_hybrid for that "
                    "version",
                    version.c_str(), environment.library.c_str(), MF_PYTHON_VERSION);
    }
    return Status::Ok;
}

void tell_python_of_forks();
void end_at_exit();

// An interpreter that has failed to start is left half made: what it says when it is started again is of no use.
std::string why_never;  // under `start_mutex`

Status refuse_to_start(const Environment& environment) {
    return fail(Status::Error, "Python does not start in the environment of %s: %s", environment.program.c_str(),
                why_never.c_str());
}

// On the thread that called us, which then goes on without the interpreter's lock.
Status initialise(const Environment& environment) {
    PyConfig config;
    python.PyConfig_InitIsolatedConfig(&config);  // the shell's PYTHONPATH and the like are not the program's
    PyStatus status = python.PyConfig_SetBytesString(&config, &config.program_name, environment.program.c_str());
    if (!python.PyStatus_Exception(status)) status = python.Py_InitializeFromConfig(&config);
    python.PyConfig_Clear(&config);
    if (python.PyStatus_Exception(status)) {
        why_never = status.err_msg == nullptr ? "it does not say why" : status.err_msg;
        return refuse_to_start(environment);
    }
    // Whoever imports it first is the main thread, for which Python must never take another that comes and goes.
    python.Py_DecRef(python.PyImport_ImportModule("threading"));
    tell_python_of_forks();
    std::atexit(end_at_exit);
    python.PyEval_SaveThread();
    return Status::Ok;
}

// What is started runs code of the environment (its .pth files, sitecustomize), which may fork on this thread.
constinit thread_local bool is_starting = false;

struct Starting {
    Starting() {
        start_mutex.lock();
        is_starting = true;
    }
    ~Starting() {
        is_starting = false;
        start_mutex.unlock();
    }
    Starting(const Starting&) = delete;
    Starting& operator=(const Starting&) = delete;
};

Status load_and_initialise(const Environment& environment) {
    const Starting starting;
    if (!is_loaded) {
        const Status status = load(environment);
        if (status != Status::Ok) return status;
        is_loaded = true;
    }
    if (!why_never.empty()) return refuse_to_start(environment);
    if (python.Py_IsInitialized() == 0) return initialise(environment);
    tell_python_of_forks();
    return Status::Ok;
}

// This thread has the interpreter's lock while one exists. As AcquiredGil of the Python module, which says why.
class Inside {
public:
    Inside() {
        if (python.PyGILState_GetThisThreadState() == nullptr) {
            const NoForks whole;
            made_ = python.PyThreadState_New(python.PyInterpreterState_Main());
        }
        if (made_ != nullptr) {
            python.PyEval_RestoreThread(made_);
        } else {
            before_ = python.PyGILState_Ensure();
        }
    }
    ~Inside() {
        if (made_ != nullptr) {
            python.PyThreadState_Clear(made_);
            python.PyThreadState_DeleteCurrent();
        } else {
            python.PyGILState_Release(before_);
        }
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

private:
    PyThreadState* made_ = nullptr;
    PyGILState_STATE before_{};
};

// Under the interpreter's lock: what was raised, as text.
std::string what_was_raised() {
    PyObject* type = nullptr;
    PyObject* value = nullptr;
    PyObject* trace = nullptr;
    python.PyErr_Fetch(&type, &value, &trace);
    python.PyErr_NormalizeException(&type, &value, &trace);
    PyObject* const text = value == nullptr ? nullptr : python.PyObject_Str(value);
    const char* const characters = text == nullptr ? nullptr : python.PyUnicode_AsUTF8AndSize(text, nullptr);
    std::string said = characters == nullptr ? "an exception without words" : characters;
    python.PyErr_Clear();
    for (PyObject* const each : {type, value, trace, text}) python.Py_DecRef(each);
    return said;
}

bool import_bridge() {
    PyObject* const module = python.PyImport_ImportModule(kBridgeModule);
    python.Py_DecRef(module);
    return module != nullptr;
}

// A process that runs Python without our environment finds the package at the end of its path.
void add_to_path(const std::string& folder) {
    PyObject* const path = python.PySys_GetObject("path");
    PyObject* const text = python.PyUnicode_DecodeFSDefault(folder.c_str());
    if (path == nullptr || text == nullptr || python.PyList_Append(path, text) != 0) python.PyErr_Clear();
    python.Py_DecRef(text);
}

// "", or why not.
std::string import_or_explain(const Environment& environment) {
    const Inside inside;
    if (import_bridge()) return "";
    const std::string reason = what_was_raised();
    if (environment.packages.empty() || !reason.starts_with("No module named 'memfabric_hybrid'")) return reason;
    add_to_path(environment.packages);
    return import_bridge() ? "" : what_was_raised();
}

Status import_control_plane(const Environment& environment) {
    const std::string reason = import_or_explain(environment);
    if (!reason.empty()) {
        return fail(Status::Error,
                    "Python cannot import memfabric_hybrid in the environment of %s: %s. Install it there "
                    "with pip",
                    environment.program.c_str(), reason.c_str());
    }
    if (bridge::served() != nullptr) return Status::Ok;
    return fail(Status::Error,
                "Python has imported another installation of memfabric_hybrid than the one of %s: install "
                "it once, or load the library of the other",
                environment.library.c_str());
}

// ---- forks --------------------------------------------------------------------------------------------------------
// A C program forks without Python's knowledge. What os.fork does around a fork is done here: the forking thread takes
// the interpreter's lock, so that no other thread is inside when the child begins, and Python is told on both sides.

thread_local bool is_told;  // os.fork and its like hold the lock, and do all of this themselves
thread_local PyGILState_STATE state_before_fork;

void prepare_fork() {
    is_told = python.Py_IsInitialized() != 0 && python.PyGILState_Check() == 0;
    if (!is_told) return;
    state_before_fork = python.PyGILState_Ensure();
    python.PyOS_BeforeFork();
}

void after_fork_in_parent() {
    if (!is_told) return;
    python.PyOS_AfterFork_Parent();
    python.PyGILState_Release(state_before_fork);
}

void after_fork_in_child() {
    if (!is_told) return;
    python.PyOS_AfterFork_Child();
    python.PyGILState_Release(state_before_fork);
}

// Also for an interpreter that was there before: a Python program's C code may fork by itself.
void tell_python_of_forks() {
    static const int once = [] {
        bridge::make_fork_handlers();
        return pthread_atfork(prepare_fork, after_fork_in_parent, after_fork_in_child);
    }();
    static_cast<void>(once);
}

// A child must not begin with a start half done.
[[gnu::constructor]] void hold_start_across_forks() {
    const auto hold = [] {
        if (!is_starting) start_mutex.lock();
    };
    const auto let_go = [] {
        if (!is_starting) start_mutex.unlock();
    };
    pthread_atfork(hold, let_go, let_go);
}

// The program's end is ours: memberships and stores end as they do at the end of a Python program.
void end_at_exit() {
    const bridge::Carry carry = bridge::served();
    if (carry == nullptr) return;
    bridge::Call call{};
    call.function = "at_exit";
    carry(call);
}

}  // namespace

Status start_control_plane() {
    Environment environment;
    Status status = find_environment(environment);
    if (status == Status::Ok) status = load_and_initialise(environment);
    if (status == Status::Ok) status = import_control_plane(environment);
    return status;
}

}  // namespace memfabric::capi
