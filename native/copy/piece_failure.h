// SPDX-License-Identifier: Apache-2.0
//
// Which piece of a batch a failure is about.
#pragma once

#include <cstddef>

#include "base/api.h"
#include "base/status.h"
#include "copy/request.h"

namespace memfabric {

// Puts the piece, its size and its addresses before the sentence of the thread's last error; the status stays.
[[gnu::cold]] MF_API Status about_piece(Status status, std::size_t index, std::size_t count, const Piece& piece);

}  // namespace memfabric
