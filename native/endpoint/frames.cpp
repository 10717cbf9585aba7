// SPDX-License-Identifier: Apache-2.0
#include "endpoint/frames.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace memfabric {
namespace {

constexpr std::uint32_t kMagic = 0x5458'464d;  // "MFXT"
constexpr std::uint16_t kVersion = 4;

enum class Kind : std::uint16_t {
    Hello = 1,
    Welcome = 2,
    Attach = 3,
    Accepted = 4,
    Refused = 5,
    Offered = 6,
    Withdrawn = 7,
    Connect = 8,
    Connected = 9,
    AttachRemote = 10,
    AcceptedRemote = 11,
    Notify = 12,
    Notified = 13,
    AskRegion = 14,
    ServedRegion = 15
};

class Writer {
public:
    explicit Writer(Kind kind) {
        number(kMagic);
        number(kVersion);
        number(static_cast<std::uint16_t>(kind));
        number(std::uint32_t{0});  // the length, known at the end
    }
    template <typename T>
    Writer& number(T value) {
        for (std::size_t i = 0; i < sizeof value; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
        return *this;
    }
    Writer& text(std::string_view text) {
        const std::string_view kept = text.substr(0, kLongestTextBytes);
        number(static_cast<std::uint8_t>(kept.size()));
        bytes_ += kept;
        return *this;
    }
    Writer& raw(std::span<const std::uint8_t> bytes) {
        bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return *this;
    }
    Writer& blob(std::string_view bytes) {
        number(static_cast<std::uint32_t>(bytes.size()));
        bytes_ += bytes;
        return *this;
    }
    Writer& rest(std::string_view bytes) {
        bytes_ += bytes;
        return *this;
    }
    Bytes finish() {
        const std::size_t length = bytes_.size() - kFrameHeaderBytes;
        for (std::size_t i = 0; i < 4; ++i) bytes_[8 + i] = static_cast<char>(length >> (8 * i));
        return std::move(bytes_);
    }

private:
    Bytes bytes_;
};

// Once something does not fit, `whole` stays false and all values are zeroes.
class Reader {
public:
    explicit Reader(std::span<const char> bytes) : bytes_(bytes) {}

    template <typename T>
    T number() {
        T value = 0;
        const std::span<const char> taken = take(sizeof value);
        for (std::size_t i = 0; i < taken.size(); ++i) {
            value =
                static_cast<T>(value | static_cast<T>(static_cast<T>(static_cast<std::uint8_t>(taken[i])) << (8 * i)));
        }
        return value;
    }
    std::string text() {
        const std::span<const char> taken = take(number<std::uint8_t>());
        return {taken.begin(), taken.end()};
    }
    template <std::size_t Size>
    void raw(std::array<std::uint8_t, Size>& target) {
        target = {};
        const std::span<const char> taken = take(Size);
        std::copy(taken.begin(), taken.end(), target.begin());
    }
    Bytes blob() {
        const std::span<const char> taken = take(number<std::uint32_t>());
        return {taken.begin(), taken.end()};
    }
    Bytes rest() {
        const std::span<const char> taken = take(bytes_.size());
        return {taken.begin(), taken.end()};
    }
    bool whole() const { return fits_ && bytes_.empty(); }

private:
    std::span<const char> take(std::size_t count) {
        fits_ = fits_ && count <= bytes_.size();
        if (!fits_) return {};
        const std::span<const char> taken = bytes_.first(count);
        bytes_ = bytes_.subspan(count);
        return taken;
    }

    std::span<const char> bytes_;
    bool fits_ = true;
};

// The payload, if the frame is one of that kind.
std::optional<Reader> payload_of(std::span<const char> frame, Kind kind) {
    std::size_t frame_bytes = 0;
    if (completeness(frame, frame_bytes) != Completeness::Complete || frame_bytes != frame.size()) return std::nullopt;
    if (Reader(frame.subspan(6, 2)).number<std::uint16_t>() != static_cast<std::uint16_t>(kind)) return std::nullopt;
    return Reader(frame.subspan(kFrameHeaderBytes));
}

}  // namespace

Completeness completeness(std::span<const char> buffer, std::size_t& frame_bytes) {
    const std::string expected = [] {
        Writer writer(Kind::Hello);
        return writer.finish().substr(0, 6);
    }();
    const std::size_t known = std::min(buffer.size(), expected.size());
    if (std::memcmp(buffer.data(), expected.data(), known) != 0) return Completeness::Malformed;
    if (buffer.size() < kFrameHeaderBytes) return Completeness::Incomplete;
    const auto length = Reader(buffer.subspan(8, 4)).number<std::uint32_t>();
    const auto kind = Reader(buffer.subspan(6, 2)).number<std::uint16_t>();
    const bool may_be_long =
        kind == static_cast<std::uint16_t>(Kind::Notify) || kind == static_cast<std::uint16_t>(Kind::ServedRegion);
    if (length > (may_be_long ? kLongestNotifyPayloadBytes : kLongestPayloadBytes)) return Completeness::Malformed;
    frame_bytes = kFrameHeaderBytes + length;
    return buffer.size() < frame_bytes ? Completeness::Incomplete : Completeness::Complete;
}

Bytes encode(const Hello&) { return Writer(Kind::Hello).finish(); }

Bytes encode(const Welcome& welcome) {
    Writer writer(Kind::Welcome);
    return writer.text(welcome.host).text(welcome.unix_name).raw(welcome.instance).raw(welcome.secret).finish();
}

Bytes encode(const Attach& attach) {
    Writer writer(Kind::Attach);
    return writer.raw(attach.secret).raw(attach.initiator).text(attach.initiator_session).finish();
}

Bytes encode(const Accepted& accepted) {
    Writer writer(Kind::Accepted);
    return writer.raw(accepted.instance).number(accepted.segment_count).raw(accepted.data_secret).finish();
}

Bytes encode(const Refused& refused) {
    Writer writer(Kind::Refused);
    return writer.text(refused.reason).finish();
}

Bytes encode(const Offered& offered) {
    Writer writer(Kind::Offered);
    writer.number(offered.id).number(offered.start).number(offered.size_bytes).number(offered.file_offset);
    return writer.finish();
}

Bytes encode(const Withdrawn& withdrawn) {
    Writer writer(Kind::Withdrawn);
    return writer.number(withdrawn.id).finish();
}

Bytes encode(const AttachRemote& attach) {
    Writer writer(Kind::AttachRemote);
    return writer.raw(attach.secret).raw(attach.initiator).text(attach.initiator_session).finish();
}

Bytes encode(const AcceptedRemote& accepted) {
    Writer writer(Kind::AcceptedRemote);
    writer.text(accepted.data_host).number(accepted.data_port).raw(accepted.data_secret);
    const UcxOffer& ucx = accepted.ucx;
    return writer.text(ucx.version).text(ucx.transports).text(ucx.devices).text(ucx.obstacle).finish();
}

Bytes encode(const Connect& connect) {
    Writer writer(Kind::Connect);
    return writer.raw(connect.target).raw(connect.secret).finish();
}

Bytes encode(const Connected& connected) { return Writer(Kind::Connected).number(connected.number).finish(); }

Bytes encode(const Notified& notified) {
    Writer writer(Kind::Notified);
    return writer.number(notified.number).number(static_cast<std::uint8_t>(notified.verdict)).finish();
}

Bytes encode(const AskRegion& ask) {
    Writer writer(Kind::AskRegion);
    return writer.number(ask.number).number(ask.address).finish();
}

Bytes encode(const ServedRegion& region) {
    Writer writer(Kind::ServedRegion);
    writer.number(region.number).number(static_cast<std::uint8_t>(region.verdict)).text(region.reason);
    writer.number(region.base).number(region.size_bytes);
    return writer.blob(region.worker_address).blob(region.key).finish();
}

Bytes encode_notify(std::uint64_t number, std::string_view data) {
    Writer writer(Kind::Notify);
    return writer.number(number).rest(data).finish();
}

std::optional<Hello> decode_hello(std::span<const char> frame) {
    const std::optional<Reader> reader = payload_of(frame, Kind::Hello);
    return reader && reader->whole() ? std::optional<Hello>(Hello{}) : std::nullopt;
}

std::optional<Welcome> decode_welcome(std::span<const char> frame) {
    std::optional<Reader> reader = payload_of(frame, Kind::Welcome);
    if (!reader) return std::nullopt;
    Welcome welcome;
    welcome.host = reader->text();
    welcome.unix_name = reader->text();
    reader->raw(welcome.instance);
    reader->raw(welcome.secret);
    return reader->whole() ? std::optional(welcome) : std::nullopt;
}

std::optional<Attach> decode_attach(std::span<const char> frame) {
    std::optional<Reader> reader = payload_of(frame, Kind::Attach);
    if (!reader) return std::nullopt;
    Attach attach;
    reader->raw(attach.secret);
    reader->raw(attach.initiator);
    attach.initiator_session = reader->text();
    return reader->whole() ? std::optional(attach) : std::nullopt;
}

std::optional<Accepted> decode_accepted(std::span<const char> frame) {
    std::optional<Reader> reader = payload_of(frame, Kind::Accepted);
    if (!reader) return std::nullopt;
    Accepted accepted;
    reader->raw(accepted.instance);
    accepted.segment_count = reader->number<std::uint32_t>();
    reader->raw(accepted.data_secret);
    return reader->whole() ? std::optional(accepted) : std::nullopt;
}

std::optional<Refused> decode_refused(std::span<const char> frame) {
    std::optional<Reader> reader = payload_of(frame, Kind::Refused);
    if (!reader) return std::nullopt;
    Refused refused{reader->text()};
    return reader->whole() ? std::optional(refused) : std::nullopt;
}

std::optional<Offered> decode_offered(std::span<const char> frame) {
    std::optional<Reader> reader = payload_of(frame, Kind::Offered);
    if (!reader) return std::nullopt;
    Offered offered;
    offered.id = reader->number<std::uint32_t>();
    offered.start = reader->number<std::uint64_t>();
    offered.size_bytes = reader->number<std::uint64_t>();
    offered.file_offset = reader->number<std::uint64_t>();
    return reader->whole() ? std::optional(offered) : std::nullopt;
}

std::optional<Withdrawn> decode_withdrawn(std::span<const char> frame) {
    std::optional<Reader> reader = payload_of(frame, Kind::Withdrawn);
    if (!reader) return std::nullopt;
    const Withdrawn withdrawn{reader->number<std::uint32_t>()};
    return reader->whole() ? std::optional(withdrawn) : std::nullopt;
}

std::optional<AttachRemote> decode_attach_remote(std::span<const char> frame) {
    std::optional<Reader> reader = payload_of(frame, Kind::AttachRemote);
    if (!reader) return std::nullopt;
    AttachRemote attach;
    reader->raw(attach.secret);
    reader->raw(attach.initiator);
    attach.initiator_session = reader->text();
    return reader->whole() ? std::optional(attach) : std::nullopt;
}

std::optional<AcceptedRemote> decode_accepted_remote(std::span<const char> frame) {
    std::optional<Reader> reader = payload_of(frame, Kind::AcceptedRemote);
    if (!reader) return std::nullopt;
    AcceptedRemote accepted;
    accepted.data_host = reader->text();
    accepted.data_port = reader->number<std::uint16_t>();
    reader->raw(accepted.data_secret);
    for (std::string* text :
         {&accepted.ucx.version, &accepted.ucx.transports, &accepted.ucx.devices, &accepted.ucx.obstacle}) {
        *text = reader->text();
    }
    return reader->whole() ? std::optional(accepted) : std::nullopt;
}

std::optional<Connect> decode_connect(std::span<const char> frame) {
    std::optional<Reader> reader = payload_of(frame, Kind::Connect);
    if (!reader) return std::nullopt;
    Connect connect;
    reader->raw(connect.target);
    reader->raw(connect.secret);
    return reader->whole() ? std::optional(connect) : std::nullopt;
}

std::optional<Connected> decode_connected(std::span<const char> frame) {
    std::optional<Reader> reader = payload_of(frame, Kind::Connected);
    if (!reader) return std::nullopt;
    const Connected connected{reader->number<std::uint64_t>()};
    return reader->whole() ? std::optional(connected) : std::nullopt;
}

std::optional<Notify> decode_notify(std::span<const char> frame) {
    std::optional<Reader> reader = payload_of(frame, Kind::Notify);
    if (!reader) return std::nullopt;
    Notify notify;
    notify.number = reader->number<std::uint64_t>();
    notify.data = reader->rest();
    return reader->whole() ? std::optional(std::move(notify)) : std::nullopt;
}

std::optional<Notified> decode_notified(std::span<const char> frame) {
    std::optional<Reader> reader = payload_of(frame, Kind::Notified);
    if (!reader) return std::nullopt;
    Notified notified;
    notified.number = reader->number<std::uint64_t>();
    const auto verdict = reader->number<std::uint8_t>();
    notified.verdict = static_cast<NotifyVerdict>(verdict);
    const bool known = verdict <= static_cast<std::uint8_t>(NotifyVerdict::Closed);
    return known && reader->whole() ? std::optional(notified) : std::nullopt;
}

std::optional<AskRegion> decode_ask_region(std::span<const char> frame) {
    std::optional<Reader> reader = payload_of(frame, Kind::AskRegion);
    if (!reader) return std::nullopt;
    AskRegion ask;
    ask.number = reader->number<std::uint64_t>();
    ask.address = reader->number<std::uint64_t>();
    return reader->whole() ? std::optional(ask) : std::nullopt;
}

std::optional<ServedRegion> decode_served_region(std::span<const char> frame) {
    std::optional<Reader> reader = payload_of(frame, Kind::ServedRegion);
    if (!reader) return std::nullopt;
    ServedRegion region;
    region.number = reader->number<std::uint64_t>();
    const auto verdict = reader->number<std::uint8_t>();
    region.verdict = static_cast<RegionVerdict>(verdict);
    region.reason = reader->text();
    region.base = reader->number<std::uint64_t>();
    region.size_bytes = reader->number<std::uint64_t>();
    region.worker_address = reader->blob();
    region.key = reader->blob();
    const bool known = verdict <= static_cast<std::uint8_t>(RegionVerdict::Unknown);
    return known && reader->whole() ? std::optional(std::move(region)) : std::nullopt;
}

}  // namespace memfabric
