// SPDX-License-Identifier: Apache-2.0
//
// Handshakes of two ends that trust each other or do not, and what they say to each other.
#include "tls/stream.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/last_error.h"
#include "base/owned_fd.h"
#include "tests/assertions.h"
#include "tests/tls/tls_identity.h"

namespace memfabric::tls {
namespace {

using namespace memfabric::tests;

class TlsStream : public ::testing::Test {
protected:
    void SetUp() override {
        if (const std::string obstacle = no_openssl(); !obstacle.empty()) GTEST_SKIP() << obstacle;
        int ends[2];
        require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
        client_fd_.reset(ends[0]);
        server_fd_.reset(ends[1]);
    }

    void open(const Material& client, const Material& server) {
        client_ = Stream::open(identity_of(client)->context(), client_fd_.get(), Role::Client);
        server_ = Stream::open(identity_of(server)->context(), server_fd_.get(), Role::Server);
        require(client_ != nullptr && server_ != nullptr);
    }

    // Until both are done or one has failed; then the client reads what the server thinks of it.
    void shake_hands() {
        for (int turn = 0; turn < 20; ++turn) {
            const Handshake of_client = client_->shake_hands();
            const Handshake of_server = server_->shake_hands();
            if (of_server == Handshake::Failed || of_client == Handshake::Failed) break;
            if (of_client == Handshake::Done && of_server == Handshake::Done) return;
        }
        char byte;
        if (client_->is_ready()) static_cast<void>(client_->read(&byte, 1));
        if (server_->shake_hands() == Handshake::Done) static_cast<void>(server_->read(&byte, 1));
    }

    OwnedFd client_fd_;
    OwnedFd server_fd_;
    std::unique_ptr<Stream> client_;
    std::unique_ptr<Stream> server_;
};

TEST_F(TlsStream, carries_bytes_both_ways) {
    open(good_material(), good_material());
    shake_hands();
    ASSERT_TRUE(client_->is_ready() && server_->is_ready());
    char buffer[16] = {};
    EXPECT_EQ(server_->read(buffer, sizeof buffer), -1);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(client_->write("hello", 5), 5);
    EXPECT_EQ(server_->read(buffer, 2), 2);
    EXPECT_TRUE(server_->has_unread());
    EXPECT_EQ(server_->read(buffer + 2, sizeof buffer - 2), 3);
    EXPECT_STREQ(buffer, "hello");
    EXPECT_FALSE(server_->has_unread());
    EXPECT_EQ(server_->write("bye", 3), 3);
    EXPECT_EQ(client_->read(buffer, sizeof buffer), 3);
}

TEST_F(TlsStream, nothing_of_it_can_be_read_on_the_way) {
    open(good_material(), good_material());
    shake_hands();
    const std::string secret = "nobody else may read this";
    EXPECT_EQ(client_->write(secret.data(), secret.size()), static_cast<ssize_t>(secret.size()));
    std::string passing(1 << 16, '\0');
    const ssize_t got = recv(server_fd_.get(), passing.data(), passing.size(), MSG_PEEK);
    ASSERT_GT(got, static_cast<ssize_t>(secret.size()));
    EXPECT_EQ(passing.find("nobody"), std::string::npos);
}

TEST_F(TlsStream, what_does_not_fit_is_written_again) {
    open(good_material(), good_material());
    shake_hands();
    const std::vector<char> bytes(100'000, 'x');
    std::size_t written = 0;
    ssize_t last = 0;
    while ((last = client_->write(bytes.data(), bytes.size())) > 0) written += static_cast<std::size_t>(last);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_TRUE(client_->wants_room());
    std::vector<char> room(1 << 20);
    std::size_t read = 0;
    while ((last = server_->read(room.data(), room.size())) > 0) read += static_cast<std::size_t>(last);
    EXPECT_EQ(client_->unsent_bytes(), bytes.size());
    EXPECT_EQ(client_->write(bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    written += bytes.size();
    while (read < written && (last = server_->read(room.data(), room.size())) > 0)
        read += static_cast<std::size_t>(last);
    EXPECT_EQ(read, written);
}

TEST_F(TlsStream, an_end_is_an_end) {
    open(good_material(), good_material());
    shake_hands();
    client_.reset();
    client_fd_.reset();
    char byte;
    EXPECT_EQ(server_->read(&byte, 1), 0);
}

TEST_F(TlsStream, changed_bytes_are_noticed) {
    open(good_material(), good_material());
    shake_hands();
    const std::string forged = std::string("\x17\x03\x03\x00\x20", 5) + std::string(32, 'f');
    ASSERT_EQ(send(client_fd_.get(), forged.data(), forged.size(), 0), static_cast<ssize_t>(forged.size()));
    char byte;
    EXPECT_EQ(server_->read(&byte, 1), -1);
    EXPECT_EQ(errno, EPROTO);
    EXPECT_NE(server_->failure(), "");
}

TEST_F(TlsStream, an_encrypted_key_needs_its_passphrase) {
    Material material = good_material();
    material.key = kEncryptedKey;
    material.passphrase = kPassphrase;
    open(material, material);
    shake_hands();
    EXPECT_TRUE(client_->is_ready() && server_->is_ready());
}

struct Distrust {
    const char* name;
    Material client;
    Material server;
    const char* client_says;
    const char* server_says;
};

class TlsDistrust : public TlsStream, public ::testing::WithParamInterface<Distrust> {};

TEST_P(TlsDistrust, both_ends_know_why) {
    open(GetParam().client, GetParam().server);
    shake_hands();
    EXPECT_TRUE(contains(client_->failure(), GetParam().client_says));
    EXPECT_TRUE(contains(server_->failure(), GetParam().server_says));
}

Material with_certificate(const char* certificate) {
    Material material = good_material();
    material.certificate = certificate;
    return material;
}

Material with_revocations() {
    Material material = good_material();
    material.revocations = kRevocations;
    return material;
}

INSTANTIATE_TEST_SUITE_P(
    All, TlsDistrust,
    ::testing::Values(
        Distrust{"client_of_another_authority",
                 {kAuthority, "", kStrangersCertificate, kKey, ""},
                 good_material(),
                 "of no authority it knows",
                 "its certificate is not trusted: unable to get local issuer certificate"},
        Distrust{"server_of_another_authority", good_material(), with_certificate(kStrangersCertificate),
                 "its certificate is not trusted: unable to get local issuer certificate", "of no authority it knows"},
        Distrust{"expired_client", with_certificate(kExpiredCertificate), good_material(),
                 "that this side's certificate has expired; renew it", "certificate has expired; renew it"},
        Distrust{"expired_server", good_material(), with_certificate(kExpiredCertificate),
                 "certificate has expired; renew it", "that this side's certificate has expired; renew it"},
        Distrust{"revoked_client", with_certificate(kRevokedCertificate), with_revocations(),
                 "that this side's certificate is revoked", "its certificate is not trusted: certificate revoked"},
        Distrust{"revoked_server", with_revocations(), with_certificate(kRevokedCertificate),
                 "its certificate is not trusted: certificate revoked", "that this side's certificate is revoked"},
        Distrust{"server_with_a_client_certificate", good_material(), with_certificate(kClientsCertificate),
                 "members need certificates for both server and client authentication", "is not for this use"}),
    [](const ::testing::TestParamInfo<Distrust>& distrust) { return std::string(distrust.param.name); });

TEST_F(TlsStream, what_is_no_tls_is_said) {
    open(good_material(), good_material());
    ASSERT_EQ(send(client_fd_.get(), "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
    EXPECT_EQ(server_->shake_hands(), Handshake::Failed);
    EXPECT_EQ(server_->failure(), "it speaks HTTP");
}

TEST(TlsContext, refuses_what_cannot_be_used) {
    if (const std::string obstacle = no_openssl(); !obstacle.empty()) GTEST_SKIP() << obstacle;
    std::shared_ptr<const Context> context;
    const auto refuses = [&](void (*spoil)(Material&), const char* sentence) {
        Material material = good_material();
        spoil(material);
        EXPECT_EQ(Context::make(material, context), Status::InvalidParam);
        EXPECT_TRUE(says(sentence));
        EXPECT_EQ(context, nullptr);
    };
    refuses([](Material& material) { material.authorities = "none"; }, "the authorities cannot be used");
    refuses([](Material& material) { material.revocations = "none"; }, "the lists of revoked certificates");
    refuses([](Material& material) { material.certificate = ""; }, "the certificate cannot be used");
    refuses([](Material& material) { material.key = kOtherKey; }, "does not belong to the private key");
    refuses([](Material& material) { material.key = "none"; }, "the private key cannot be read");
    refuses(
        [](Material& material) {
            material.key = kEncryptedKey;
            material.passphrase = "another";
        },
        "its passphrase is another");
    EXPECT_EQ(Context::make(good_material(), context), Status::Ok);
}

}  // namespace
}  // namespace memfabric::tls
