// SPDX-License-Identifier: Apache-2.0
#include "ucx/library.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>

#include "base/last_error.h"
#include "base/loaded_library.h"

namespace memfabric::ucx {
namespace {

constexpr char kSystemLibrary[] = "libucp.so.0";
constexpr unsigned kMajor = 1;
constexpr unsigned kOldestMinor = 13;

std::mutex library_mutex;
std::atomic<const Library*> the_library{nullptr};

// UCX reads these once, while it is loaded. Signals and output belong to the program: unless somebody has said
// something else, UCX takes neither. What fails is said by our own sentences.
class LoadTimeSettings {
public:
    LoadTimeSettings() {
        for (Variable& variable : variables_) {
            variable.is_ours = std::getenv(variable.name) == nullptr;
            if (variable.is_ours) setenv(variable.name, variable.value, 1);
        }
    }
    ~LoadTimeSettings() {
        for (const Variable& variable : variables_) {
            if (variable.is_ours) unsetenv(variable.name);
        }
    }
    LoadTimeSettings(const LoadTimeSettings&) = delete;
    LoadTimeSettings& operator=(const LoadTimeSettings&) = delete;

private:
    struct Variable {
        const char* name;
        const char* value;
        bool is_ours = false;
    };
    std::array<Variable, 4> variables_{{{"UCX_HANDLE_ERRORS", "none"},
                                        {"UCX_DEBUG_SIGNO", "0"},
                                        {"UCX_LOG_FILE", "stderr"},
                                        {"UCX_LOG_LEVEL", "fatal"}}};
};

// Also one that was renamed when it was packed into a wheel: libucp-0123abcd.so.0.0.0.
bool is_named_ucp(std::string_view file) {
    return file.starts_with("libucp") && file.find(".so") != std::string_view::npos &&
           (file[6] == '.' || file[6] == '-');
}

bool is_same_file(const std::string& one, const std::string& other) {
    std::error_code error;
    return std::filesystem::equivalent(one, other, error);
}

}  // namespace

const Library* Library::loaded() { return the_library.load(std::memory_order_acquire); }

Status Library::load(const Search& search) {
    const std::lock_guard lock(library_mutex);
    if (the_library.load(std::memory_order_relaxed) != nullptr) return Status::Ok;
    std::unique_ptr<Library> library(new Library);
    if (const Status status = library->open(search); status != Status::Ok) return status;
    if (const Status status = library->resolve(); status != Status::Ok) return status;
    the_library.store(library.release(), std::memory_order_release);
    return Status::Ok;
}

Status Library::open(const Search& search) {
    const std::string present = path_of_loaded(is_named_ucp);
    if (!search.chosen.empty()) return open_file(search.chosen, present);
    if (!present.empty()) return open_file(present, present);
    if (open_file(kSystemLibrary, "") == Status::Ok) return Status::Ok;
    const std::string why_not = take_last_error();
    if (!search.wheel.empty()) return open_file(search.wheel, "");
    return fail(
        Status::NoResources,
        "UCX is not installed (%s); install it (Debian, Ubuntu: libucx0), set MF_UCX_LIBRARY to its libucp, or, "
        "for a machine without RDMA devices, install the Python package libucx-cu12",
        why_not.c_str());
}

Status Library::open_file(const std::string& file, const std::string& loaded_from) {
    if (!loaded_from.empty() && !is_same_file(file, loaded_from)) {
        return fail(Status::ResourceInUse,
                    "UCX of %s is wanted, but this process has loaded that of %s already, and two copies disturb each "
                    "other; unset MF_UCX_LIBRARY, or set it to that one",
                    file.c_str(), loaded_from.c_str());
    }
    const LoadTimeSettings settings;
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) return fail(Status::NoResources, "UCX cannot be loaded: %s", dlerror());
    path_ = file;
    return Status::Ok;
}

template <typename Function>
void Library::find(Function& function, const char* name) {
    void* symbol = dlsym(handle_, name);
    if (symbol == nullptr && missing_.empty()) missing_ = name;
    std::memcpy(&function, &symbol, sizeof symbol);
}

Status Library::resolve() {
    find(calls_.get_version, "ucp_get_version");
    find(calls_.status_text, "ucs_status_string");
    find(calls_.config_read, "ucp_config_read");
    find(calls_.config_modify, "ucp_config_modify");
    find(calls_.config_release, "ucp_config_release");
    find(calls_.init, "ucp_init_version");
    find(calls_.cleanup, "ucp_cleanup");
    find(calls_.worker_create, "ucp_worker_create");
    find(calls_.worker_destroy, "ucp_worker_destroy");
    find(calls_.worker_get_address, "ucp_worker_get_address");
    find(calls_.worker_release_address, "ucp_worker_release_address");
    find(calls_.worker_get_efd, "ucp_worker_get_efd");
    find(calls_.worker_arm, "ucp_worker_arm");
    find(calls_.worker_progress, "ucp_worker_progress");
    find(calls_.mem_map, "ucp_mem_map");
    find(calls_.mem_unmap, "ucp_mem_unmap");
    find(calls_.rkey_pack, "ucp_rkey_pack");
    find(calls_.rkey_buffer_release, "ucp_rkey_buffer_release");
    find(calls_.ep_create, "ucp_ep_create");
    find(calls_.ep_close, "ucp_ep_close_nbx");
    find(calls_.ep_flush, "ucp_ep_flush_nbx");
    find(calls_.ep_rkey_unpack, "ucp_ep_rkey_unpack");
    find(calls_.rkey_destroy, "ucp_rkey_destroy");
    find(calls_.put, "ucp_put_nbx");
    find(calls_.get, "ucp_get_nbx");
    find(calls_.request_status, "ucp_request_check_status");
    find(calls_.request_free, "ucp_request_free");
    Dl_info info{};
    if (dladdr(reinterpret_cast<void*>(calls_.get_version), &info) != 0 && info.dli_fname != nullptr) {
        path_ = info.dli_fname;
    }
    if (!missing_.empty()) {
        return fail(Status::NoResources,
                    "%s is no UCX that can be used: it has no function %s; install UCX 1.13 or later", path_.c_str(),
                    missing_.c_str());
    }
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
    calls_.get_version(&major, &minor, &release);
    version_ = std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
    if (major == kMajor && minor >= kOldestMinor) return Status::Ok;
    return fail(Status::NoResources, "UCX of %s is version %s; install 1.13 or a later 1.x", path_.c_str(),
                version_.c_str());
}

}  // namespace memfabric::ucx
