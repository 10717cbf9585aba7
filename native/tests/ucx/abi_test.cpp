// SPDX-License-Identifier: Apache-2.0
//
// What ucx/abi.h declares by hand is what UCX's own headers say.
#include "ucx/abi.h"

#include <cstddef>

#include "tests/assertions.h"
#include "tests/called_alike.h"

#if __has_include(<ucp/api/ucp.h>)
#include <ucp/api/ucp.h>

#include <type_traits>

namespace memfabric::ucx::abi {
namespace {

#define SAME_PLACE(ours, field, theirs, their_field)                       \
    static_assert(offsetof(ours, field) == offsetof(theirs, their_field)); \
    static_assert(sizeof(std::declval<ours>().field) == sizeof(std::declval<theirs>().their_field))

SAME_PLACE(ContextParams, field_mask, ucp_params_t, field_mask);
SAME_PLACE(ContextParams, features, ucp_params_t, features);
SAME_PLACE(ContextParams, workers_shared, ucp_params_t, mt_workers_shared);
SAME_PLACE(ContextParams, name, ucp_params_t, name);
static_assert(ContextParams::kFeatures == UCP_PARAM_FIELD_FEATURES);
static_assert(ContextParams::kWorkersShared == UCP_PARAM_FIELD_MT_WORKERS_SHARED);
static_assert(ContextParams::kName == UCP_PARAM_FIELD_NAME);
static_assert(ContextParams::kRma == UCP_FEATURE_RMA && ContextParams::kWakeup == UCP_FEATURE_WAKEUP);

SAME_PLACE(WorkerParams, field_mask, ucp_worker_params_t, field_mask);
SAME_PLACE(WorkerParams, thread_mode, ucp_worker_params_t, thread_mode);
SAME_PLACE(WorkerParams, client_id, ucp_worker_params_t, client_id);
static_assert(WorkerParams::kThreadMode == UCP_WORKER_PARAM_FIELD_THREAD_MODE);
static_assert(int{WorkerParams::kSerialized} == int{UCS_THREAD_MODE_SERIALIZED});

SAME_PLACE(MemoryParams, field_mask, ucp_mem_map_params_t, field_mask);
SAME_PLACE(MemoryParams, address, ucp_mem_map_params_t, address);
SAME_PLACE(MemoryParams, length, ucp_mem_map_params_t, length);
static_assert(MemoryParams::kAddress == UCP_MEM_MAP_PARAM_FIELD_ADDRESS);
static_assert(MemoryParams::kLength == UCP_MEM_MAP_PARAM_FIELD_LENGTH);

SAME_PLACE(EndpointParams, field_mask, ucp_ep_params_t, field_mask);
SAME_PLACE(EndpointParams, remote_address, ucp_ep_params_t, address);
SAME_PLACE(EndpointParams, error_mode, ucp_ep_params_t, err_mode);
SAME_PLACE(EndpointParams, error_handler, ucp_ep_params_t, err_handler.cb);
SAME_PLACE(EndpointParams, error_argument, ucp_ep_params_t, err_handler.arg);
static_assert(sizeof(EndpointParams) >= sizeof(ucp_ep_params_t));
static_assert(EndpointParams::kRemoteAddress == UCP_EP_PARAM_FIELD_REMOTE_ADDRESS);
static_assert(EndpointParams::kErrorMode == UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE);
static_assert(EndpointParams::kErrorHandler == UCP_EP_PARAM_FIELD_ERR_HANDLER);
static_assert(int{EndpointParams::kPeer} == int{UCP_ERR_HANDLING_MODE_PEER});

SAME_PLACE(RequestParams, field_mask, ucp_request_param_t, op_attr_mask);
SAME_PLACE(RequestParams, flags, ucp_request_param_t, flags);
SAME_PLACE(RequestParams, callback, ucp_request_param_t, cb);
SAME_PLACE(RequestParams, user_data, ucp_request_param_t, user_data);
static_assert(RequestParams::kCallback == UCP_OP_ATTR_FIELD_CALLBACK);
static_assert(RequestParams::kUserData == UCP_OP_ATTR_FIELD_USER_DATA);
static_assert(RequestParams::kFlags == UCP_OP_ATTR_FIELD_FLAGS);
static_assert(RequestParams::kForce == UCP_EP_CLOSE_FLAG_FORCE);

#undef SAME_PLACE

static_assert(sizeof(Result) == sizeof(ucs_status_t));
static_assert(kOk == UCS_OK && kInProgress == UCS_INPROGRESS && kBusy == UCS_ERR_BUSY && kLastError == UCS_ERR_LAST);

#define SAME_CALL(ours, theirs) static_assert(tests::is_called_alike<decltype(Functions::ours), decltype(theirs)>)

SAME_CALL(get_version, ucp_get_version);
SAME_CALL(status_text, ucs_status_string);
SAME_CALL(config_read, ucp_config_read);
SAME_CALL(config_modify, ucp_config_modify);
SAME_CALL(config_release, ucp_config_release);
SAME_CALL(init, ucp_init_version);
SAME_CALL(cleanup, ucp_cleanup);
SAME_CALL(worker_create, ucp_worker_create);
SAME_CALL(worker_destroy, ucp_worker_destroy);
SAME_CALL(worker_get_address, ucp_worker_get_address);
SAME_CALL(worker_release_address, ucp_worker_release_address);
SAME_CALL(worker_get_efd, ucp_worker_get_efd);
SAME_CALL(worker_arm, ucp_worker_arm);
SAME_CALL(worker_progress, ucp_worker_progress);
SAME_CALL(mem_map, ucp_mem_map);
SAME_CALL(mem_unmap, ucp_mem_unmap);
SAME_CALL(rkey_pack, ucp_rkey_pack);
SAME_CALL(rkey_buffer_release, ucp_rkey_buffer_release);
SAME_CALL(ep_create, ucp_ep_create);
SAME_CALL(ep_close, ucp_ep_close_nbx);
SAME_CALL(ep_flush, ucp_ep_flush_nbx);
SAME_CALL(ep_rkey_unpack, ucp_ep_rkey_unpack);
SAME_CALL(rkey_destroy, ucp_rkey_destroy);
SAME_CALL(put, ucp_put_nbx);
SAME_CALL(get, ucp_get_nbx);
SAME_CALL(request_status, ucp_request_check_status);
SAME_CALL(request_free, ucp_request_free);

#undef SAME_CALL

TEST(UcxAbi, is_that_of_the_headers) {}  // all of it was compared by the compiler

}  // namespace
}  // namespace memfabric::ucx::abi

#else

TEST(UcxAbi, is_that_of_the_headers) { GTEST_SKIP() << "UCX's headers are not installed (Debian, Ubuntu: libucx-dev)"; }

#endif

namespace memfabric::ucx::abi {
namespace {

TEST(UcxAbi, tells_requests_from_failures) {
    EXPECT_FALSE(is_failure(nullptr));
    EXPECT_EQ(failure_of(nullptr), kOk);
    int request = 0;
    EXPECT_FALSE(is_failure(&request));
    for (const Result result : {Result{-1}, kCanceled, kLastError}) {
        const auto coded = reinterpret_cast<Request>(std::intptr_t{result});
        EXPECT_TRUE(is_failure(coded));
        EXPECT_EQ(failure_of(coded), result);
    }
}

}  // namespace
}  // namespace memfabric::ucx::abi
