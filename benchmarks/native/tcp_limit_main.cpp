// SPDX-License-Identifier: Apache-2.0
//
// The limit of TCP: sent straight from the source, received straight into place, with blocking calls and nothing else,
// on one connection; flows on as many as they have streams, each with a thread on both sides. A driver as
// benchmarks/support/network_drivers.py wants it.
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "layouts.h"
#include "meeting.h"
#include "region.h"

namespace {

using namespace mf_bench;

struct Header {
    std::uint64_t offset;
    std::uint64_t size;
};

void serve_connection(int fd, char* memory) {
    std::vector<Header> headers;
    for (;;) {
        std::uint64_t count = 0;
        if (!receive_all(fd, {{&count, sizeof count}})) return;
        headers.resize(count);
        if (!receive_all(fd, {{headers.data(), count * sizeof(Header)}})) return;
        std::vector<iovec> pieces;
        pieces.reserve(count);
        for (const Header& header : headers) pieces.push_back({memory + header.offset, header.size});
        char done = 1;
        if (!receive_all(fd, std::move(pieces)) || !send_all(fd, {{&done, 1}})) return;
    }
}

void serve(const char* address) {
    char* const memory = region(1);
    const int listener = listen_at(address);
    for (;;) std::thread(serve_connection, accept_at(listener), memory).detach();  // until the process is ended
}

void ask(int fd, const char* memory, const Layout& layout, std::vector<Header>& headers) {
    std::uint64_t count = layout.size();
    headers.clear();
    std::vector<iovec> pieces{{&count, sizeof count}, {nullptr, count * sizeof(Header)}};
    pieces.reserve(count + 2);
    for (const Piece& piece : layout) {
        headers.push_back({piece.target, piece.size});
        pieces.push_back({const_cast<char*>(memory) + piece.source, piece.size});
    }
    pieces[1].iov_base = headers.data();
    if (!send_all(fd, std::move(pieces))) die("the connection was lost");
}

void take_answer(int fd) {
    char done = 0;
    if (!receive_all(fd, {{&done, 1}})) die("the connection was lost");
}

void run_stream(int fd, const char* memory, const Flow& flow, std::size_t stream) {
    std::vector<Header> headers;
    Layout layout(1);
    std::size_t unanswered = 0;
    for (std::size_t i = stream; i < flow.operations; i += flow.streams) {
        if (unanswered == flow.window) {
            take_answer(fd);
            --unanswered;
        }
        const std::size_t offset = flow.offset(stream, i / flow.streams);
        layout[0] = {offset, offset, flow.size};
        ask(fd, memory, layout, headers);
        ++unanswered;
    }
    for (; unanswered != 0; --unanswered) take_answer(fd);
}

void initiate(const char* layouts, const char* target, const char* port) {
    const char* const memory = region(2);
    const std::vector<Shape> shapes = read_shapes(layouts);
    std::vector<int> connections{connect_to(target, port)};
    std::vector<Header> headers;
    const auto write = [&](const Layout& layout) {
        ask(connections.front(), memory, layout, headers);
        take_answer(connections.front());
    };
    const auto run = [&](const Flow& flow) {
        while (connections.size() < flow.streams) connections.push_back(connect_to(target, port));
        std::vector<std::thread> streams;
        for (std::size_t i = 0; i < flow.streams; ++i) {
            streams.emplace_back(run_stream, connections[i], memory, std::cref(flow), i);
        }
        for (std::thread& stream : streams) stream.join();
    };
    obey(shapes, write, run);
}

}  // namespace

int main(int count, char** words) { mf_bench::drive(count, words, serve, initiate); }
