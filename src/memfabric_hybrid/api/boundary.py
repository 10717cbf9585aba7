"""The API boundary, between exceptions (inside) and codes (outside): the one place where failures become return values.

Every failure that leaves through here is one line of the log and the last error of the calling thread, also of calls
that raise it (`raises`; hot ones call `report` themselves, and pay nothing while they succeed). TypeErrors pass: they
are the caller's wrong types, as documented. So does what a signal handler of the program raised while it happened to
run in here. Anything else that is not a FabricError is a defect of ours; it is logged with its traceback and
reported as ERROR, because the interface promises codes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from memfabric_hybrid import _native, logs
from memfabric_hybrid.api import failure_log
from memfabric_hybrid.errors import SHORTAGES, Code, FabricError, resource_failure
from memfabric_hybrid.machine import forks, signal_handlers

P = ParamSpec("P")
T = TypeVar("T")
log = logs.get(__name__)


def record(call: str, failure: Exception) -> Code:
    """Logs that the call failed, and sets the last error to what `failure` says; returns its code."""
    failure = _known(failure)
    if isinstance(failure, FabricError):
        failure_log.report(call, failure.code, str(failure))
        _native.set_last_error(str(failure))  # afterwards: a logger of the program's own may have called us
        return failure.code
    log.error("%s: unexpected failure", call, exc_info=failure)
    _native.set_last_error(f"unexpected {type(failure).__name__}: {failure}; the log has the traceback")
    return Code.ERROR


def report(call: str, failure: Exception) -> None:
    """Before a call raises it: `record`, unless it passes. A shortage of the system is raised here, as what it is."""
    if isinstance(failure, TypeError | ImportError) or is_programs(failure):
        return
    known = _known(failure)
    record(call, known)
    if known is not failure:
        raise known from failure


def _known(failure: Exception) -> Exception:
    if isinstance(failure, OSError) and failure.errno in SHORTAGES:
        return resource_failure("the system refuses something that this call needs", failure)
    return failure


def _name_of(function: Callable[..., object]) -> str:
    """As users write it: bm.initialize, BigMemory.join."""
    name = function.__qualname__
    return name if "." in name else f"{function.__module__.rpartition('.')[2]}.{name}"


def is_programs(failure: Exception) -> bool:
    """Whether a signal handler of the program raised it."""
    return not isinstance(failure, FabricError) and signal_handlers.raised(failure)


def returns_code(function: Callable[P, None]) -> Callable[P, int]:
    """0 when `function` returns, the failure's code when it raises."""
    function.__annotations__["return"] = "int"  # before it is wrapped: help() and inspect look through the boundary
    call = _name_of(function)

    @functools.wraps(function)
    def boundary(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            forks.notice()
            function(*args, **kwargs)
        except TypeError:
            raise
        except Exception as failure:
            if is_programs(failure):
                raise
            return int(record(call, failure))
        return 0

    return boundary


def returns(on_failure: T) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """The function's value, or `on_failure` when it raises: the getters of the documents."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        call = _name_of(function)

        @functools.wraps(function)
        def boundary(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                forks.notice()
                return function(*args, **kwargs)
            except TypeError:
                raise
            except Exception as failure:
                if is_programs(failure):
                    raise
                record(call, failure)
                return on_failure

        return boundary

    return decorate


def raises(function: Callable[P, T]) -> Callable[P, T]:
    """The function's value; what it raises is reported on its way."""
    call = _name_of(function)

    @functools.wraps(function)
    def boundary(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            forks.notice()
            return function(*args, **kwargs)
        except Exception as failure:
            report(call, failure)
            raise

    return boundary


def raises_saying(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """The calls that the documents let raise RuntimeError, with "`what`: <reason>"; the last error is the reason."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        call = _name_of(function)

        @functools.wraps(function)
        def boundary(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                forks.notice()
                return function(*args, **kwargs)
            except (FabricError, OSError) as failure:
                if is_programs(failure):
                    raise
                reason = resource_failure("the system refuses it", failure) if isinstance(failure, OSError) else failure
                record(call, reason)
                raise type(reason)(f"{what}: {reason}") from failure
            except Exception as failure:
                report(call, failure)
                raise

        return boundary

    return decorate
