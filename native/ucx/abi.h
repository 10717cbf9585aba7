// SPDX-License-Identifier: Apache-2.0
//
// The part of UCX's C interface that we call, declared by hand: the library is found at run time, so that a build needs
// neither its headers nor itself. Only the layout counts here. A structure begins with a mask of the fields that are
// set, and UCX reads no others; new ones are added behind the old ones. tests/ucx/abi_test.cpp compares all of it with
// the real headers where they are installed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace memfabric::ucx::abi {

// Handles are UCX's own; each has a type, so that they are not confused.
using Context = struct ContextTag*;
using Config = struct ConfigTag*;
using Worker = struct WorkerTag*;
using Endpoint = struct EndpointTag*;
using Memory = struct MemoryTag*;
using RemoteKey = struct RemoteKeyTag*;
using Address = struct AddressTag*;

// ucs_status_t; negative numbers are failures, `status_text` says which.
using Result = std::int8_t;
inline constexpr Result kOk = 0;
inline constexpr Result kInProgress = 1;
inline constexpr Result kBusy = -15;
inline constexpr Result kCanceled = -16;
inline constexpr Result kLastError = -100;

// What begins an operation returns nothing if it is over, a failure's number in the place of a pointer, or a request.
using Request = void*;
inline bool is_failure(Request request) {
    return reinterpret_cast<std::uintptr_t>(request) >= static_cast<std::uintptr_t>(std::intptr_t{kLastError});
}
inline Result failure_of(Request request) { return static_cast<Result>(reinterpret_cast<std::intptr_t>(request)); }
inline Request failed(Result result) { return reinterpret_cast<Request>(std::intptr_t{result}); }

struct ContextParams {
    static constexpr std::uint64_t kFeatures = 1 << 0;
    static constexpr std::uint64_t kWorkersShared = 1 << 5;
    static constexpr std::uint64_t kName = 1 << 8;
    static constexpr std::uint64_t kRma = 1 << 1;
    static constexpr std::uint64_t kWakeup = 1 << 4;

    std::uint64_t field_mask;
    std::uint64_t features;
    std::size_t request_size;
    void* request_init;
    void* request_cleanup;
    std::uint64_t tag_sender_mask;
    int workers_shared;  // mt_workers_shared: several threads use the context
    std::size_t estimated_endpoints;
    std::size_t estimated_processes;
    const char* name;
};

struct WorkerParams {
    static constexpr std::uint64_t kThreadMode = 1 << 0;
    enum ThreadMode : int { kSingle, kSerialized, kMulti };

    std::uint64_t field_mask;
    ThreadMode thread_mode;
    std::array<unsigned long, 1024 / (8 * sizeof(unsigned long))> cpu_mask;
    unsigned events;
    void* user_data;
    int event_fd;
    std::uint64_t flags;
    const char* name;
    std::size_t am_alignment;
    std::uint64_t client_id;
};

struct MemoryParams {
    static constexpr std::uint64_t kAddress = 1 << 0;
    static constexpr std::uint64_t kLength = 1 << 1;

    std::uint64_t field_mask;
    void* address;
    std::size_t length;
    unsigned flags;
    unsigned protection;
    int memory_type;
};

struct SocketAddress {
    const void* address;
    std::uint32_t length;
};

struct EndpointParams {
    static constexpr std::uint64_t kRemoteAddress = 1 << 0;
    static constexpr std::uint64_t kErrorMode = 1 << 1;
    static constexpr std::uint64_t kErrorHandler = 1 << 2;
    enum ErrorMode : int { kNone, kPeer };
    using ErrorHandler = void (*)(void* argument, Endpoint endpoint, Result result);

    std::uint64_t field_mask;
    const void* remote_address;
    ErrorMode error_mode;
    ErrorHandler error_handler;
    void* error_argument;
    void* user_data;
    unsigned flags;
    SocketAddress socket_address;
    void* connection_request;
    const char* name;
    SocketAddress local_address;
};

struct RequestParams {
    static constexpr std::uint32_t kCallback = 1 << 1;
    static constexpr std::uint32_t kUserData = 1 << 2;
    static constexpr std::uint32_t kFlags = 1 << 4;
    static constexpr std::uint32_t kForce = 1 << 0;
    using Callback = void (*)(Request request, Result result, void* user_data);

    std::uint32_t field_mask;
    std::uint32_t flags;
    Request request;
    Callback callback;
    std::uint64_t datatype;
    void* user_data;
    void* reply_buffer;
    int memory_type;
    void* received;
    Memory memory;
};

// The functions, by the names that they have in the library. New versions have all of them, too.
struct Functions {
    void (*get_version)(unsigned* major, unsigned* minor, unsigned* release);
    const char* (*status_text)(Result result);
    Result (*config_read)(const char* prefix, const char* file, Config* config);
    Result (*config_modify)(Config config, const char* name, const char* value);
    void (*config_release)(Config config);
    Result (*init)(unsigned major, unsigned minor, const ContextParams* params, Config config, Context* context);
    void (*cleanup)(Context context);
    Result (*worker_create)(Context context, const WorkerParams* params, Worker* worker);
    void (*worker_destroy)(Worker worker);
    Result (*worker_get_address)(Worker worker, Address* address, std::size_t* size_bytes);
    void (*worker_release_address)(Worker worker, Address address);
    Result (*worker_get_efd)(Worker worker, int* fd);
    Result (*worker_arm)(Worker worker);
    unsigned (*worker_progress)(Worker worker);
    Result (*mem_map)(Context context, const MemoryParams* params, Memory* memory);
    Result (*mem_unmap)(Context context, Memory memory);
    Result (*rkey_pack)(Context context, Memory memory, void** buffer, std::size_t* size_bytes);
    void (*rkey_buffer_release)(void* buffer);
    Result (*ep_create)(Worker worker, const EndpointParams* params, Endpoint* endpoint);
    Request (*ep_close)(Endpoint endpoint, const RequestParams* params);
    Request (*ep_flush)(Endpoint endpoint, const RequestParams* params);
    Result (*ep_rkey_unpack)(Endpoint endpoint, const void* buffer, RemoteKey* key);
    void (*rkey_destroy)(RemoteKey key);
    Request (*put)(Endpoint endpoint, const void* source, std::size_t size_bytes, std::uint64_t target, RemoteKey key,
                   const RequestParams* params);
    Request (*get)(Endpoint endpoint, void* target, std::size_t size_bytes, std::uint64_t source, RemoteKey key,
                   const RequestParams* params);
    Result (*request_status)(Request request);
    void (*request_free)(Request request);
};

}  // namespace memfabric::ucx::abi
