// SPDX-License-Identifier: Apache-2.0
#include "copy/piece_failure.h"

#include <string>

#include "base/last_error.h"

namespace memfabric {

Status about_piece(Status status, std::size_t index, std::size_t count, const Piece& piece) {
    const std::string reason = take_last_error();
    return fail(status, "piece %zu of %zu (counted from 0), %zu bytes from %p to %p: %s", index, count,
                piece.size_bytes, static_cast<const void*>(piece.source), static_cast<const void*>(piece.target),
                reason.c_str());
}

}  // namespace memfabric
