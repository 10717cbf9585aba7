// SPDX-License-Identifier: Apache-2.0
//
// The return codes of the public interface; src/memfabric_hybrid/errors.py says what each means and what to do.
#pragma once

namespace memfabric {

enum class [[nodiscard]] Status : int {
    Ok = 0,
    Error = -1,
    InvalidParam = -2000,
    MallocFailed = -2001,
    NoResources = -2002,
    NotStarted = -2003,
    Timeout = -2004,
    RepeatInvoke = -2005,
    Duplicated = -2006,
    NotExist = -2007,
    NotInit = -2008,
    ResourceInUse = -2009,
    PartialFailed = -2012,
    NotConnected = -2014,
    BufferTooSmall = -2015,

    Interrupted = 1,  // never leaves the library: a signal handler raised, and the exception comes out instead
};

}  // namespace memfabric
