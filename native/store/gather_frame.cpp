// SPDX-License-Identifier: Apache-2.0
#include "store/gather_frame.h"

#include <bit>
#include <limits>

#include "base/limits.h"

namespace memfabric::store {
namespace {

// Kinds of messages, as in the Python messages.
constexpr std::uint64_t kGather = 18;
constexpr std::uint64_t kGathered = 73;
constexpr std::uint64_t kArrived = 74;

// Further limits of the store, as in the Python messages.
constexpr std::size_t kMaxGroupBytes = 1024;
constexpr double kMaxTimeoutS = 4294967296.0;
constexpr std::uint64_t kMaxNumber = std::numeric_limits<std::int64_t>::max();

// MessagePack's first bytes.
constexpr unsigned char kFixArray = 0x90;
constexpr unsigned char kFixText = 0xa0;
constexpr unsigned char kBytes8 = 0xc4;
constexpr unsigned char kBytes16 = 0xc5;
constexpr unsigned char kBytes32 = 0xc6;
constexpr unsigned char kDouble = 0xcb;
constexpr unsigned char kUnsigned8 = 0xcc;
constexpr unsigned char kUnsigned16 = 0xcd;
constexpr unsigned char kUnsigned32 = 0xce;
constexpr unsigned char kUnsigned64 = 0xcf;
constexpr unsigned char kText8 = 0xd9;
constexpr unsigned char kText16 = 0xda;
constexpr unsigned char kText32 = 0xdb;
constexpr unsigned char kArray16 = 0xdc;

class Writer {
public:
    explicit Writer(std::string& out) : out_(out) {}

    void byte(unsigned char value) { out_.push_back(static_cast<char>(value)); }
    void big_endian(std::uint64_t value, int bytes) {
        for (int i = bytes - 1; i >= 0; --i) byte(static_cast<unsigned char>(value >> (8 * i)));
    }
    void number(std::uint64_t value) {
        if (value < 0x80) return byte(static_cast<unsigned char>(value));
        sized(value, kUnsigned8, kUnsigned16, kUnsigned32, kUnsigned64);
    }
    void text(std::string_view value) {
        if (value.size() < 32) {
            byte(static_cast<unsigned char>(kFixText | value.size()));
        } else {
            sized(value.size(), kText8, kText16, kText32, kText32);
        }
        out_ += value;
    }
    void bytes(std::string_view value) {
        sized(value.size(), kBytes8, kBytes16, kBytes32, kBytes32);
        out_ += value;
    }
    void real(double value) {
        byte(kDouble);
        big_endian(std::bit_cast<std::uint64_t>(value), 8);
    }

private:
    void sized(std::uint64_t value, unsigned char in8, unsigned char in16, unsigned char in32, unsigned char in64) {
        if (value <= std::numeric_limits<std::uint8_t>::max()) {
            byte(in8);
            big_endian(value, 1);
        } else if (value <= std::numeric_limits<std::uint16_t>::max()) {
            byte(in16);
            big_endian(value, 2);
        } else if (value <= std::numeric_limits<std::uint32_t>::max()) {
            byte(in32);
            big_endian(value, 4);
        } else {
            byte(in64);
            big_endian(value, 8);
        }
    }

    std::string& out_;
};

// Every step says whether what it looked for was there; nothing is read beyond the end.
class Reader {
public:
    explicit Reader(std::string_view in) : in_(in) {}

    bool at_end() const { return in_.empty(); }
    bool number(std::uint64_t& value) {
        unsigned char first = 0;
        if (!byte(first)) return false;
        if (first < 0x80) {
            value = first;
            return true;
        }
        if (first < kUnsigned8 || first > kUnsigned64) return false;
        return big_endian(value, 1 << (first - kUnsigned8));
    }
    bool array(std::uint64_t& count) {
        unsigned char first = 0;
        if (!byte(first)) return false;
        if ((first & 0xf0) == kFixArray) {
            count = first & 0x0f;
            return true;
        }
        return first == kArray16 && big_endian(count, 2);  // more than that no group can have
    }
    bool bytes(std::string_view& value) {
        unsigned char first = 0;
        std::uint64_t size = 0;
        if (!byte(first) || first < kBytes8 || first > kBytes32 || !big_endian(size, 1 << (first - kBytes8)) ||
            size > in_.size()) {
            return false;
        }
        value = in_.substr(0, size);
        in_.remove_prefix(size);
        return true;
    }
    bool big_endian(std::uint64_t& value, int bytes) {
        value = 0;
        unsigned char next = 0;
        for (int i = 0; i < bytes; ++i) {
            if (!byte(next)) return false;
            value = value << 8 | next;
        }
        return true;
    }

private:
    bool byte(unsigned char& value) {
        if (in_.empty()) return false;
        value = static_cast<unsigned char>(in_.front());
        in_.remove_prefix(1);
        return true;
    }

    std::string_view in_;
};

}  // namespace

bool is_plain(const Gather& gather) {
    return !gather.group.empty() && gather.group.size() <= kMaxGroupBytes && gather.rank < gather.size &&
           gather.size <= kMaxRanks && gather.data.size() <= kMaxGatherBytes && gather.timeout_s > 0 &&
           gather.timeout_s <= kMaxTimeoutS && gather.round <= kMaxNumber && gather.call <= kMaxNumber;
}

std::string gather_frame(const Gather& gather) {
    std::string frame;
    frame.reserve(kHeaderBytes + 64 + gather.group.size() + gather.data.size());
    frame.resize(kHeaderBytes);
    Writer writer(frame);
    writer.byte(kFixArray | 8);
    writer.number(kGather);
    writer.number(gather.call);
    writer.text(gather.group);
    writer.number(gather.round);
    writer.number(gather.rank);
    writer.number(gather.size);
    writer.bytes(gather.data);
    writer.real(gather.timeout_s);
    const std::size_t payload_bytes = frame.size() - kHeaderBytes;
    for (std::size_t i = 0; i < 4; ++i) frame[i] = static_cast<char>(payload_bytes >> (24 - 8 * i));
    frame[4] = static_cast<char>(kFrameVersion);
    return frame;
}

bool read_header(std::string_view header, std::size_t& payload_bytes) {
    Reader reader(header);
    std::uint64_t length = 0;
    std::uint64_t version = 0;
    if (!reader.big_endian(length, 4) || !reader.big_endian(version, 1) || version != kFrameVersion) return false;
    payload_bytes = length;
    return true;
}

GatherAnswer read_gather_answer(std::string_view payload, std::uint32_t size, std::vector<std::string_view>& parts) {
    Reader reader(payload);
    std::uint64_t fields = 0;
    std::uint64_t kind = 0;
    std::uint64_t count = 0;
    if (!reader.array(fields) || fields != 2 || !reader.number(kind)) return GatherAnswer::kOther;
    if (kind == kArrived) {
        return reader.number(count) && count == size && reader.at_end() ? GatherAnswer::kArrived : GatherAnswer::kOther;
    }
    if (kind != kGathered || !reader.array(count) || count != size) return GatherAnswer::kOther;
    parts.resize(size);
    for (std::string_view& part : parts) {
        if (!reader.bytes(part)) return GatherAnswer::kOther;
    }
    return reader.at_end() ? GatherAnswer::kGathered : GatherAnswer::kOther;
}

}  // namespace memfabric::store
