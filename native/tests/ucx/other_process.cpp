// SPDX-License-Identifier: Apache-2.0
#include "tests/ucx/other_process.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "tests/assertions.h"
#include "tests/become_test.h"
#include "tests/ucx/ucx_library.h"
#include "ucx/served_memory.h"
#include "ucx/transport.h"

namespace memfabric::tests {
namespace {

constexpr int kPartFd = 3;  // where the other process finds its socket

void write_all(int fd, const void* bytes, std::size_t size_bytes) {
    require(::write(fd, bytes, size_bytes) == static_cast<ssize_t>(size_bytes));
}

void read_all(int fd, void* bytes, std::size_t size_bytes) {
    require(::recv(fd, bytes, size_bytes, MSG_WAITALL) == static_cast<ssize_t>(size_bytes));
}

void write_text(int fd, const std::string& text) {
    const std::uint64_t size_bytes = text.size();
    write_all(fd, &size_bytes, sizeof size_bytes);
    write_all(fd, text.data(), text.size());
}

std::string read_text(int fd) {
    std::uint64_t size_bytes = 0;
    read_all(fd, &size_bytes, sizeof size_bytes);
    std::string text(size_bytes, '\0');
    read_all(fd, text.data(), text.size());
    return text;
}

void write_memory(int fd, const ucx::RemoteMemory& memory) {
    write_text(fd, memory.worker_address);
    write_text(fd, memory.version);
    const ucx::RemoteRegion& region = memory.regions.front();
    write_text(fd, region.key);
    write_all(fd, &region.base, sizeof region.base);
    write_all(fd, &region.size_bytes, sizeof region.size_bytes);
}

ucx::RemoteMemory read_memory(int fd) {
    ucx::RemoteMemory memory;
    memory.worker_address = read_text(fd);
    memory.version = read_text(fd);
    ucx::RemoteRegion& region = memory.regions.emplace_back();
    region.key = read_text(fd);
    read_all(fd, &region.base, sizeof region.base);
    read_all(fd, &region.size_bytes, sizeof region.size_bytes);
    return memory;
}

// Until the test has gone.
void await_end(int fd) {
    char byte;
    while (::read(fd, &byte, 1) > 0) {
    }
}

}  // namespace

OtherProcess::OtherProcess(const std::string& part, const std::string& library) {
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    socket_.reset(ends[0]);
    pid_ = fork();
    require(pid_ >= 0);
    if (pid_ == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!library.empty()) setenv("MF_UCX_LIBRARY", library.c_str(), 1);
        if (dup2(ends[1], kPartFd) != kPartFd) _exit(1);
        syscall(SYS_close_range, kPartFd + 1, ~0U, 0);
        become_test("UcxPart.DISABLED_" + part);
    }
    ::close(ends[1]);
}

void OtherProcess::kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
}

int OtherProcess::await_exit() {
    int status = -1;
    require(waitpid(std::exchange(pid_, -1), &status, 0) > 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void OtherProcess::send(const ucx::RemoteMemory& memory) const { write_memory(socket_.get(), memory); }

ucx::RemoteMemory OtherProcess::receive() const { return read_memory(socket_.get()); }

void OtherProcess::say_word() const { write_all(socket_.get(), "!", 1); }

void OtherProcess::await_word() const {
    char byte;
    read_all(socket_.get(), &byte, 1);
}

// The parts. They run in the other process only.

TEST(UcxPart, DISABLED_serve) {
    require(load_ucx().empty());
    std::vector<std::byte> memory(kOtherBytes, std::byte{0x77});
    std::unique_ptr<ucx::ServedMemory> served;
    require_ok(ucx::ServedMemory::serve(memory.data(), memory.size(), ucx_over_loopback(), served));
    write_memory(kPartFd, served->for_initiators());
    await_end(kPartFd);
}

// A process whose child outlives it.
TEST(UcxPart, DISABLED_serve_and_fork) {
    require(load_ucx().empty());
    std::vector<std::byte> memory(kOtherBytes, std::byte{0x77});
    std::unique_ptr<ucx::ServedMemory> served;
    require_ok(ucx::ServedMemory::serve(memory.data(), memory.size(), ucx_over_loopback(), served));
    write_memory(kPartFd, served->for_initiators());
    char byte;
    read_all(kPartFd, &byte, 1);  // somebody is connected
    const pid_t child = fork();
    require(child >= 0);
    if (child == 0) {
        write_all(kPartFd, &byte, 1);
        await_end(kPartFd);
        _exit(0);
    }
    await_end(kPartFd);
}

// Whether the thread that serves memory is there.
bool is_served() {
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::getline(std::ifstream(thread.path() / "comm"), name);
        if (name == "mf-ucx") return true;
    }
    return false;
}

// A program that ends in the middle of everything. UCX ends after the program's last handler: nobody may use it then.
TEST(UcxPart, DISABLED_serve_and_exit) {
    require(load_ucx().empty());
    std::atexit([] { _exit(is_served() ? 1 : kExitCode); });
    std::vector<std::byte> memory(kOtherBytes, std::byte{0x77});
    std::unique_ptr<ucx::ServedMemory> served;
    require_ok(ucx::ServedMemory::serve(memory.data(), memory.size(), ucx_over_loopback(), served));
    write_memory(kPartFd, served->for_initiators());
    char byte;
    read_all(kPartFd, &byte, 1);
    std::exit(is_served() ? 2 : 3);
}

TEST(UcxPart, DISABLED_write) {
    require(load_ucx().empty());
    const ucx::RemoteMemory memory = read_memory(kPartFd);
    std::unique_ptr<ucx::UcxTransport> transport;
    require_ok(ucx::UcxTransport::open(memory, ucx_over_loopback(), transport));
    const ucx::RemoteRegion& region = memory.regions.front();
    const std::vector<std::byte> source(region.size_bytes, std::byte{0x66});
    const Piece piece =
        piece_of(Direction::Write, reinterpret_cast<std::uint64_t>(source.data()), region.base, region.size_bytes);
    for (bool told = false;; told = true) {
        Completion completion;
        transport->start({Direction::Write, {&piece, 1}, region.size_bytes}, completion);
        transport->finish(completion);
        require(completion.outcome().status == Status::Ok);
        if (!told) write_all(kPartFd, "!", 1);
    }
}

}  // namespace memfabric::tests
