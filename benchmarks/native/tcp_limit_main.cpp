// SPDX-License-Identifier: Apache-2.0
//
// The limit of one TCP connection: sent straight from the source, received straight into place, with blocking calls and
// nothing else. A driver as benchmarks/support/network_drivers.py wants it.
#include <cstdint>
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

void serve(const char* address) {
    char* const memory = region(1);
    const int fd = wait_for_initiator(address);
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

void initiate(const char* layouts, const char* target, const char* port) {
    char* const memory = region(2);
    const std::vector<Shape> shapes = read_shapes(layouts);
    const int fd = connect_to(target, port);
    std::vector<Header> headers;
    obey(shapes, [&](const Layout& layout) {
        std::uint64_t count = layout.size();
        headers.clear();
        std::vector<iovec> pieces{{&count, sizeof count}, {nullptr, count * sizeof(Header)}};
        pieces.reserve(count + 2);
        for (const Piece& piece : layout) {
            headers.push_back({piece.target, piece.size});
            pieces.push_back({memory + piece.source, piece.size});
        }
        pieces[1].iov_base = headers.data();
        char done = 0;
        if (!send_all(fd, std::move(pieces)) || !receive_all(fd, {{&done, 1}})) die("the connection was lost");
    });
}

}  // namespace

int main(int count, char** words) { mf_bench::drive(count, words, serve, initiate); }
