// SPDX-License-Identifier: Apache-2.0
//
// The messages of a session, as bytes: pure, checked, of limited length. Two conversations use them:
//
//   TCP   Hello → Welcome            who are you, on which host, where is your Unix socket?
//         AttachRemote → AcceptedRemote/Refused  I am on another host; then nothing, until one side hangs up
//         Connect → Connected/Refused  this connection carries data from now on (tcp/wire.h)
//   Unix  Attach → Accepted/Refused  here is my epochs page; give me your registrations
//         → Offered, Withdrawn …     there is (no longer) memory that you can map; until one side hangs up
//   both, once attached:
//         Notify → Notified          a word from the initiator's program to the target's; queued there, or why not
//         AskRegion → ServedRegion   where does UCX serve your memory at this address?
//
// Every frame is a header (magic, version, kind, length) and a payload of fixed numbers and length-prefixed texts, all
// little-endian. Anything else is malformed and ends the conversation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/limits.h"
#include "endpoint/instance_id.h"
#include "endpoint/packets.h"

namespace memfabric {

using Secret = std::array<std::uint8_t, 16>;

inline constexpr std::size_t kFrameHeaderBytes = 12;
inline constexpr std::size_t kLongestPayloadBytes = 2048;  // of all but Notify and ServedRegion
inline constexpr std::size_t kLongestNotifyPayloadBytes = sizeof(std::uint64_t) + kMaxNotificationBytes;
inline constexpr std::size_t kLongestTextBytes = 255;
inline constexpr std::size_t kLongestUcxBytes = 16 << 10;  // of a ServedRegion: worker's address and key
static_assert(kFrameHeaderBytes + kLongestNotifyPayloadBytes <= kLongestPacketBytes);

struct Hello {};

struct Welcome {
    std::string host;  // identity of the host, as the control plane knows it
    std::string unix_name;
    InstanceId instance;
    Secret secret;
};

struct Attach {
    Secret secret;
    InstanceId initiator;
    std::string initiator_session;
};  // with one descriptor: the epochs page

struct Accepted {
    InstanceId instance;
    std::uint32_t segment_count;  // as many announcements follow at once
    Secret data_secret;           // of data connections, for whom the kernel does not let into our process
};  // with one descriptor: the registrations

// Addresses [start, start + size_bytes) of the sender are that many bytes of the file, from file_offset on.
struct Offered {
    std::uint32_t id;  // what the registrations call it
    std::uint64_t start;
    std::uint64_t size_bytes;
    std::uint64_t file_offset;
};  // with one descriptor: the file

struct Withdrawn {
    std::uint32_t id;
};

struct Refused {
    std::string reason;
};

struct AttachRemote {
    Secret secret;
    InstanceId initiator;
    std::string initiator_session;
};

// What one end has of UCX, in words that the control plane understands.
struct UcxOffer {
    std::string version;
    std::string transports;
    std::string devices;
    std::string obstacle;  // why there is nothing of it
};

// Where its memory is served: data connections say `data_secret`.
struct AcceptedRemote {
    std::string data_host;  // "": where the session is
    std::uint16_t data_port;
    Secret data_secret;
    UcxOffer ucx;
};

struct Connect {
    InstanceId target;  // whose memory
    Secret secret;
};

struct Connected {
    std::uint64_t number;  // of the connection, as the target counts them
};

struct Notify {
    std::uint64_t number;  // of the initiator's choice; the answer repeats it
    Bytes data;            // at most kMaxNotificationBytes
};

enum class NotifyVerdict : std::uint8_t { Queued, TooMany, TooManyBytes, Closed };

struct Notified {
    std::uint64_t number;
    NotifyVerdict verdict;
};

struct AskRegion {
    std::uint64_t number;  // as in Notify
    std::uint64_t address;
};

enum class RegionVerdict : std::uint8_t { Served, Failed, Unknown };

// UCX's own bytes, as it gave them to the sender.
struct ServedRegion {
    std::uint64_t number;
    RegionVerdict verdict;
    std::string reason;  // if it failed
    std::uint64_t base;
    std::uint64_t size_bytes;
    Bytes worker_address;
    Bytes key;
};

Bytes encode(const Hello& hello);
Bytes encode(const Welcome& welcome);
Bytes encode(const Attach& attach);
Bytes encode(const Accepted& accepted);
Bytes encode(const Refused& refused);
Bytes encode(const Offered& offered);
Bytes encode(const Withdrawn& withdrawn);
Bytes encode(const AttachRemote& attach);
Bytes encode(const AcceptedRemote& accepted);
Bytes encode(const Connect& connect);
Bytes encode(const Connected& connected);
Bytes encode(const Notified& notified);
Bytes encode(const AskRegion& ask);
Bytes encode(const ServedRegion& region);
Bytes encode_notify(std::uint64_t number, std::string_view data);

// Of what stands in the buffer so far: incomplete (nothing is wrong yet), complete (`frame_bytes` of it), or malformed.
enum class Completeness : std::uint8_t { Incomplete, Complete, Malformed };
Completeness completeness(std::span<const char> buffer, std::size_t& frame_bytes);

// Nothing if the bytes are not exactly one well-formed frame of that kind.
std::optional<Hello> decode_hello(std::span<const char> frame);
std::optional<Welcome> decode_welcome(std::span<const char> frame);
std::optional<Attach> decode_attach(std::span<const char> frame);
std::optional<Accepted> decode_accepted(std::span<const char> frame);
std::optional<Refused> decode_refused(std::span<const char> frame);
std::optional<Offered> decode_offered(std::span<const char> frame);
std::optional<Withdrawn> decode_withdrawn(std::span<const char> frame);
std::optional<AttachRemote> decode_attach_remote(std::span<const char> frame);
std::optional<AcceptedRemote> decode_accepted_remote(std::span<const char> frame);
std::optional<Connect> decode_connect(std::span<const char> frame);
std::optional<Connected> decode_connected(std::span<const char> frame);
std::optional<Notify> decode_notify(std::span<const char> frame);
std::optional<Notified> decode_notified(std::span<const char> frame);
std::optional<AskRegion> decode_ask_region(std::span<const char> frame);
std::optional<ServedRegion> decode_served_region(std::span<const char> frame);

}  // namespace memfabric
