// SPDX-License-Identifier: Apache-2.0
//
// The quantised batch write: into memory of ours first, then to the peer.
#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <memory>
#include <utility>

#include "base/last_error.h"
#include "base/pause_point.h"
#include "copy/engine.h"
#include "copy/job.h"
#include "sync/rcu.h"
#include "transfer/engine.h"
#include "transfer/local_buffers.h"
#include "transfer/quantisation.h"

namespace memfabric {
namespace {

constexpr std::uint32_t kMostChunks = 256;

// All units of all pieces, in chunks of about equal numbers of units.
class QuantisationJob final : public ChunkedJob {
public:
    QuantisationJob(const QuantisedBatch& batch, std::span<std::int8_t> target) : batch_(batch), target_(target) {
        std::size_t offset = 0;
        for (const std::uint64_t size : batch.lengths) {
            offsets_.push_back(offset);
            offset += size / sizeof(std::uint16_t);
        }
        unit_count_ = batch.buffers.size() * batch.unit_num;
        chunk_count_ = static_cast<std::uint32_t>(std::min<std::size_t>(unit_count_, kMostChunks));
    }

    std::uint32_t chunk_count() const noexcept override { return chunk_count_; }
    void run_chunk(std::uint32_t chunk) const noexcept override {
        const QuantisationKernel& kernel = quantisation_kernels().front();
        const std::size_t end = unit_count_ * (chunk + 1) / chunk_count_;
        for (std::size_t i = unit_count_ * chunk / chunk_count_; i < end; ++i) {
            kernel.quantise(batch_.type, unit(i / batch_.unit_num, i % batch_.unit_num));
        }
    }

private:
    QuantisedUnit unit(std::size_t piece, std::size_t index) const {
        const std::size_t count = batch_.lengths[piece] / sizeof(std::uint16_t) / batch_.unit_num;
        float scale = 0;
        float offset = 0;
        std::memcpy(&scale, reinterpret_cast<const float*>(batch_.scales[piece]) + index, sizeof scale);
        if (!batch_.offsets.empty() && batch_.offsets[piece] != 0) {
            std::memcpy(&offset, reinterpret_cast<const float*>(batch_.offsets[piece]) + index, sizeof offset);
        }
        return {reinterpret_cast<const std::uint16_t*>(batch_.buffers[piece]) + index * count,
                target_.data() + offsets_[piece] + index * count, count, scale, offset};
    }

    const QuantisedBatch& batch_;
    std::span<std::int8_t> target_;
    std::vector<std::size_t> offsets_;  // of each piece in the target
    std::size_t unit_count_;
    std::uint32_t chunk_count_;
};

Status check(const QuantisedBatch& batch) {
    const std::size_t count = batch.buffers.size();
    if (count == 0 || count > kMaxBatchPieces || batch.peer_buffers.size() != count || batch.lengths.size() != count ||
        batch.scales.size() != count || (!batch.offsets.empty() && batch.offsets.size() != count)) {
        return fail(
            Status::InvalidParam,
            "the batch has %zu buffers, %zu peer buffers, %zu lengths, %zu scale and %zu offset buffers: as many "
            "of each (offset buffers may be none), 1 to %zu",
            count, batch.peer_buffers.size(), batch.lengths.size(), batch.scales.size(), batch.offsets.size(),
            kMaxBatchPieces);
    }
    if (batch.type != HalfType::Bf16 && batch.type != HalfType::Fp16) {
        return fail(Status::InvalidParam, "input_type is %u, expected 0 (bf16) or 1 (fp16)",
                    static_cast<unsigned>(batch.type));
    }
    if (batch.unit_num == 0) return fail(Status::InvalidParam, "unit_num is 0, expected at least 1");
    constexpr std::uint64_t kLongest = std::uint64_t{1} << 40;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t length = batch.lengths[i];
        if (batch.buffers[i] == 0 || batch.scales[i] == 0 || batch.buffers[i] % sizeof(std::uint16_t) != 0) {
            return fail(Status::InvalidParam,
                        "piece %zu: buffer 0x%" PRIx64 " and scale buffer 0x%" PRIx64
                        " must not be 0, the first be even",
                        i, batch.buffers[i], batch.scales[i]);
        }
        if (length == 0 || length > kLongest || length % sizeof(std::uint16_t) != 0 ||
            length / sizeof(std::uint16_t) % batch.unit_num != 0) {
            return fail(Status::InvalidParam,
                        "piece %zu: %" PRIu64 " bytes of 16-bit numbers cannot be divided into %u equal units", i,
                        length, batch.unit_num);
        }
    }
    return Status::Ok;
}

// Whatever quantisation reads: numbers, scales and offsets.
template <typename Ask>
Status for_each_buffer(const QuantisedBatch& batch, Ask ask) {
    const std::size_t factors_bytes = batch.unit_num * sizeof(float);
    for (std::size_t i = 0; i < batch.buffers.size(); ++i) {
        if (const Status status = ask(Extent{batch.buffers[i], batch.lengths[i]}); status != Status::Ok) return status;
        if (const Status status = ask(Extent{batch.scales[i], factors_bytes}); status != Status::Ok) return status;
        if (batch.offsets.empty() || batch.offsets[i] == 0) continue;
        if (const Status status = ask(Extent{batch.offsets[i], factors_bytes}); status != Status::Ok) return status;
    }
    return Status::Ok;
}

// Touches the caller's buffers: afterwards only `numbers` is needed.
Status quantise(const QuantisedBatch& batch, std::span<std::int8_t> numbers) {
    MovePins pins;
    LocalBuffers local(&pins);
    {
        const rcu::ReadGuard guard;
        const Status admitted = for_each_buffer(batch, [&](Extent buffer) { return local.admit(buffer); });
        if (admitted != Status::Ok) return admitted;
    }
    PausePoint::reach("transfer.quantise");
    const QuantisationJob job(batch, numbers);
    CopyEngine::process().share(job, 2 * numbers.size());
    return local.recheck_pinned();
}

}  // namespace

Status TransferEngine::write_quantised(const std::string& session, QuantisedBatch batch, std::uint64_t stream_handle) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    if (!is_open()) return fail(Status::NotInit, "the transfer engine is not initialised: call initialize() first");
    if (const Status status = check(batch); status != Status::Ok) return status;
    if (batch.notification) {
        if (const Status status = check_notification(*batch.notification); status != Status::Ok) return status;
    }
    if (stream_handle == 0) return quantise_and_move(session, batch);
    const std::shared_ptr<Stream> stream = Stream::find(stream_handle);
    if (stream == nullptr) {
        return fail(Status::InvalidParam, "%" PRIu64 " is not the handle of an open stream; make one with mf.Stream()",
                    stream_handle);
    }
    std::uint64_t sequence = 0;
    return stream->submit(
        [engine = shared_from_this(), session, batch = std::move(batch)] {
            return Stream::run_cancellable([&] { return engine->quantise_and_move(session, batch); });
        },
        sequence);
}

Status TransferEngine::quantise_and_move(const std::string& session, const QuantisedBatch& batch) {
    std::uint64_t total = 0;
    for (const std::uint64_t length : batch.lengths) total += length / sizeof(std::uint16_t);
    const std::unique_ptr<std::int8_t[]> numbers(new (std::nothrow) std::int8_t[total]);
    if (numbers == nullptr) {
        return fail(Status::MallocFailed, "no memory for %" PRIu64 " quantised numbers; use smaller batches", total);
    }
    if (const Status status = quantise(batch, {numbers.get(), total}); status != Status::Ok) return status;
    std::vector<Piece> pieces;
    std::size_t offset = 0;
    for (std::size_t i = 0; i < batch.buffers.size(); ++i) {
        const std::size_t count = batch.lengths[i] / sizeof(std::uint16_t);
        pieces.push_back({reinterpret_cast<std::byte*>(batch.peer_buffers[i]),
                          reinterpret_cast<const std::byte*>(numbers.get() + offset), count});
        offset += count;
    }
    return batch.notification ? write_and_notify(session, pieces, total, *batch.notification)
                              : move(Direction::Write, session, pieces, total);
}

}  // namespace memfabric
