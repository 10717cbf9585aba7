// SPDX-License-Identifier: Apache-2.0
//
// UCX as it is at its best: registered memory, puts and one flush, both sides polling. A driver as
// benchmarks/support/network_drivers.py wants it. UCX_TLS and its relatives choose the route. With MF_BENCH_PEER_ERRORS
// its endpoints hear of the peer's end, as whoever must not wait for the dead has them; some routes are slower then.
#include <ucp/api/ucp.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "layouts.h"
#include "meeting.h"
#include "region.h"

namespace {

using namespace mf_bench;

void check(ucs_status_t status, const char* what) {
    if (status != UCS_OK) die(std::string(what) + ": " + ucs_status_string(status));
}

struct Ucx {
    ucp_context_h context = nullptr;
    ucp_worker_h worker = nullptr;
    ucp_mem_h registered = nullptr;
    char* memory = nullptr;

    explicit Ucx(int fill) {
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_RMA;
        ucp_config_t* config = nullptr;
        check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
        check(ucp_init(&params, config, &context), "ucp_init");
        ucp_config_release(config);
        ucp_worker_params_t worker_params{};
        worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
        check(ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
        memory = region(fill);
        ucp_mem_map_params_t map{};
        map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        map.address = memory;
        map.length = kRegionBytes;
        check(ucp_mem_map(context, &map, &registered), "ucp_mem_map");
    }
};

void send_block(int fd, void* data, std::size_t size) {
    std::uint64_t length = size;
    if (!send_all(fd, {{&length, sizeof length}, {data, size}})) die("the initiator went away");
}

std::vector<char> receive_block(int fd) {
    std::uint64_t length = 0;
    if (!receive_all(fd, {{&length, sizeof length}})) die("the target went away");
    std::vector<char> block(length);
    if (!receive_all(fd, {{block.data(), block.size()}})) die("the target went away");
    return block;
}

void serve(const char* address) {
    Ucx ucx(1);
    const int fd = wait_for_initiator(address);
    ucp_address_t* worker_address = nullptr;
    std::size_t size = 0;
    check(ucp_worker_get_address(ucx.worker, &worker_address, &size), "ucp_worker_get_address");
    send_block(fd, worker_address, size);
    void* key = nullptr;
    check(ucp_rkey_pack(ucx.context, ucx.registered, &key, &size), "ucp_rkey_pack");
    send_block(fd, key, size);
    send_block(fd, &ucx.memory, sizeof ucx.memory);
    for (;;) ucp_worker_progress(ucx.worker);
}

void initiate(const char* layouts, const char* target, const char* port) {
    Ucx ucx(2);
    const std::vector<Shape> shapes = read_shapes(layouts);
    const int fd = connect_to(target, port);
    std::vector<char> address = receive_block(fd);
    std::vector<char> packed = receive_block(fd);
    const std::vector<char> base = receive_block(fd);
    std::uint64_t there = 0;
    std::memcpy(&there, base.data(), sizeof there);
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<ucp_address_t*>(address.data());
    if (std::getenv("MF_BENCH_PEER_ERRORS") != nullptr) {
        params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler.cb = [](void*, ucp_ep_h, ucs_status_t status) { check(status, "the target"); };
    }
    ucp_ep_h endpoint = nullptr;
    check(ucp_ep_create(ucx.worker, &params, &endpoint), "ucp_ep_create");
    ucp_rkey_h key = nullptr;
    check(ucp_ep_rkey_unpack(endpoint, packed.data(), &key), "ucp_ep_rkey_unpack");
    ucp_request_param_t with_memory{};
    with_memory.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH;
    with_memory.memh = ucx.registered;
    obey(shapes, [&](const Layout& layout) {
        for (const Piece& piece : layout) {
            void* request =
                ucp_put_nbx(endpoint, ucx.memory + piece.source, piece.size, there + piece.target, key, &with_memory);
            if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), "ucp_put_nbx");
            if (request != nullptr) ucp_request_free(request);
        }
        constexpr ucp_request_param_t kPlain{};
        void* request = ucp_ep_flush_nbx(endpoint, &kPlain);
        if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), "ucp_ep_flush_nbx");
        if (request == nullptr) return;
        ucs_status_t status = UCS_INPROGRESS;
        while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) ucp_worker_progress(ucx.worker);
        ucp_request_free(request);
        check(status, "ucp_ep_flush_nbx");
    });
}

}  // namespace

int main(int count, char** words) { mf_bench::drive(count, words, serve, initiate); }
