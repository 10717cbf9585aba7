"""What can go wrong, once: code, exception, meaning and remedy.

Internals raise these exceptions; the documented interface turns them into codes in `api/boundary`, nowhere else.
The classes are grouped by what has to change before the call can work:

    FabricError (a RuntimeError)    ERROR             -1
    ├── Misuse                      the call itself is wrong; nothing was touched
    │   ├── InvalidParam            INVALID_PARAM     -2000
    │   ├── NotStarted              NOT_STARTED       -2003
    │   ├── RepeatInvoke            REPEAT_INVOKE     -2005
    │   ├── Duplicated              DUPLICATED        -2006
    │   ├── NotExist                NOT_EXIST         -2007
    │   ├── NotInit                 NOT_INIT          -2008
    │   └── BufferTooSmall          BUFFER_TOO_SMALL  -2015
    ├── Exhausted                   this machine has no more to give
    │   ├── MallocFailed            MALLOC_FAILED     -2001
    │   ├── NoResources             NO_RESOURCES      -2002
    │   └── ResourceInUse           RES_IN_USE        -2009
    └── Unreachable                 somebody else did not answer, or not completely
        ├── TimedOut                TIMEOUT           -2004
        ├── PartialFailed           PARTIAL_FAILED    -2012
        └── NotConnected            NOT_CONNECTED     -2014
"""

from __future__ import annotations

import errno
import resource
from enum import IntEnum
from typing import ClassVar, NamedTuple


class Code(IntEnum):
    """Return codes of the public interface; 0 is success, anything else is a failure."""

    OK = 0
    ERROR = -1
    INVALID_PARAM = -2000
    MALLOC_FAILED = -2001
    NO_RESOURCES = -2002
    NOT_STARTED = -2003
    TIMEOUT = -2004
    REPEAT_INVOKE = -2005
    DUPLICATED = -2006
    NOT_EXIST = -2007
    NOT_INIT = -2008
    RES_IN_USE = -2009
    PARTIAL_FAILED = -2012
    NOT_CONNECTED = -2014
    BUFFER_TOO_SMALL = -2015
    # Of external store backends.
    STORE_INTERNAL = -3000
    STORE_INVAL = -3001
    STORE_BUFEX = -3002
    STORE_PERM = -3003
    STORE_NORES = -3004
    STORE_NOENT = -3005
    STORE_LOCKED = -3006
    STORE_UNLOCKED = -3007


class FabricError(RuntimeError):
    """Any failure this library reports. `str(error)` is the sentence that becomes the last error.

    RuntimeError is what the documented interface promises of the calls that raise.
    """

    code: ClassVar[Code] = Code.ERROR


class Misuse(FabricError):
    """The call is wrong and will stay wrong; nothing was touched."""


class InvalidParam(Misuse, ValueError):
    code = Code.INVALID_PARAM


class NotStarted(Misuse):
    code = Code.NOT_STARTED


class RepeatInvoke(Misuse):
    code = Code.REPEAT_INVOKE


class Duplicated(Misuse):
    code = Code.DUPLICATED


class NotExist(Misuse):
    code = Code.NOT_EXIST


class NotInit(Misuse):
    code = Code.NOT_INIT


class BufferTooSmall(Misuse):
    code = Code.BUFFER_TOO_SMALL


class Exhausted(FabricError):
    """This machine or this process has no more to give."""


class MallocFailed(Exhausted):
    code = Code.MALLOC_FAILED


class NoResources(Exhausted):
    code = Code.NO_RESOURCES


class ResourceInUse(Exhausted):
    code = Code.RES_IN_USE


class Unreachable(FabricError):
    """Somebody else did not answer, or not completely."""


class TimedOut(Unreachable):
    code = Code.TIMEOUT


class PartialFailed(Unreachable):
    code = Code.PARTIAL_FAILED


class NotConnected(Unreachable):
    code = Code.NOT_CONNECTED


class Meaning(NamedTuple):
    """One row of the error reference (`docs/errors.md` is generated from this table)."""

    error: type[FabricError] | None
    meaning: str
    remedy: str


MEANINGS: dict[Code, Meaning] = {
    Code.OK: Meaning(None, "The call did what it says.", "Nothing to do."),
    Code.ERROR: Meaning(
        FabricError,
        "Something failed that no other code describes; the last error says what.",
        "Read the last error; if it speaks of an unexpected failure, report it with the log.",
    ),
    Code.INVALID_PARAM: Meaning(
        InvalidParam,
        "A value is outside its limits, an address is outside the memory it must lie in, or a handle is closed.",
        "The last error names the value and the limit: correct the call.",
    ),
    Code.MALLOC_FAILED: Meaning(
        MallocFailed,
        "The machine cannot provide the memory, or the address range is taken in this process.",
        "Ask for less, free memory, or remove the mapping that the last error names.",
    ),
    Code.NO_RESOURCES: Meaning(
        NoResources,
        "A capacity is used up (ranks of the world, addresses, descriptors, threads, places in a queue), or this "
        "machine lacks what was asked for (an RDMA device, UCX, OpenSSL, an accelerator).",
        "The last error says which: raise that limit, let others go first, or ask for what is here.",
    ),
    Code.NOT_STARTED: Meaning(
        NotStarted,
        "The object has not joined (or has left), so there is nothing to copy to or from; or a transfer was cancelled "
        "before it began.",
        "Call join() first; submit what was cancelled again.",
    ),
    Code.TIMEOUT: Meaning(
        TimedOut,
        "Somebody did not answer in time; the last error names the store, the key or the ranks that are missing.",
        "Check that they run and can be reached; raise the time-out of the configuration if they are only slow.",
    ),
    Code.REPEAT_INVOKE: Meaning(
        RepeatInvoke,
        "The call may be made once only and was made before.",
        "Remove the second call.",
    ),
    Code.DUPLICATED: Meaning(
        Duplicated,
        "Something of that name, rank or start address exists already with other properties.",
        "Choose another one, or remove the first.",
    ),
    Code.NOT_EXIST: Meaning(
        NotExist,
        "The thing that was named does not exist.",
        "Check the name or address in the last error; it may have been removed already.",
    ),
    Code.NOT_INIT: Meaning(
        NotInit,
        "The module is not initialised in this process (a forked child starts uninitialised).",
        "Call initialize() first, in this very process.",
    ),
    Code.RES_IN_USE: Meaning(
        ResourceInUse,
        "A port or another exclusive resource belongs to somebody else.",
        "Choose another one, or stop the process that the last error names.",
    ),
    Code.PARTIAL_FAILED: Meaning(
        PartialFailed,
        "A copy or transfer ended half-way, or what it read from went away meanwhile: targets may have been written.",
        "Treat all its targets as undefined and repeat it.",
    ),
    Code.NOT_CONNECTED: Meaning(
        NotConnected,
        "The rank or session that owns the memory has not joined, has left, or died; no route leads to it; or the "
        "store and this process do not trust each other.",
        "Wait for it to come (again), or go on without it; the last error says who it is and why. For the store: "
        "give all the same token, and certificates of the same authority.",
    ),
    Code.BUFFER_TOO_SMALL: Meaning(
        BufferTooSmall,
        "The caller's buffer cannot hold the answer.",
        "Call again with a buffer of the size that was returned.",
    ),
    **{
        code: Meaning(None, f"An external store backend: {what}.", "None of this version's stores answers so.")
        for code, what in {
            Code.STORE_INTERNAL: "it failed inside",
            Code.STORE_INVAL: "an argument is wrong",
            Code.STORE_BUFEX: "the value is larger than the buffer for it",
            Code.STORE_PERM: "not allowed",
            Code.STORE_NORES: "it has no more to give",
            Code.STORE_NOENT: "there is no such key",
            Code.STORE_LOCKED: "somebody else has the lock",
            Code.STORE_UNLOCKED: "the lock was not held",
        }.items()
    },
}


def failure_of(code: int, sentence: str) -> FabricError:
    """The exception for a code that came from somewhere else (the wire, the native core)."""
    try:
        meaning = MEANINGS[Code(code)]
    except ValueError:
        return FabricError(f"{sentence} (unknown code {code})")
    return (meaning.error or FabricError)(sentence)


_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ETOOMANYREFS)  # the last: too many are on their way
SHORTAGES = frozenset((*_OF_DESCRIPTORS, errno.ENOMEM))  # of this process or the machine, not mistakes


def resource_failure(what: str, error: OSError) -> FabricError:
    """What it means that the system refused something: `what` begins the sentence."""
    if error.errno in _OF_DESCRIPTORS:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return NoResources(f"{what}: {error.strerror}; raise the limit of open files (ulimit -n, now {limit})")
    if error.errno == errno.ENOMEM:
        return MallocFailed(f"{what}: {error.strerror}")
    return FabricError(f"{what}: {error}")
