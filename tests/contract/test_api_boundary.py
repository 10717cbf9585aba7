"""The API boundary, between exceptions and codes."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import errors
from memfabric_hybrid.api import boundary
from memfabric_hybrid.errors import MEANINGS, Code, FabricError


@pytest.fixture(autouse=True)
def no_last_error() -> Iterator[None]:
    mf.get_and_clear_last_err_msg()
    yield
    mf.get_and_clear_last_err_msg()


@boundary.returns_code
def act(failure: BaseException | None = None, *, unused: int = 0) -> None:
    """What it does."""
    if failure is not None:
        raise failure


@boundary.returns(0)
def get(failure: BaseException | None = None) -> int:
    if failure is not None:
        raise failure
    return 7


@pytest.mark.parametrize(
    "code", [code for code in Code if MEANINGS[code].error is not None], ids=lambda code: code.name
)
def test_every_failure_becomes_its_code_and_its_sentence(code: Code) -> None:
    kind = MEANINGS[code].error
    assert kind is not None
    assert act(kind("names the value")) == code.value
    assert type(act(kind("names the value"))) is int
    assert mf.get_last_err_msg() == "names the value"
    assert get(kind("another")) == 0
    assert mf.get_last_err_msg() == "another"


def test_success_neither_sets_nor_clears_the_last_error() -> None:
    assert act() == 0
    assert mf.get_last_err_msg() == ""
    act(errors.NotExist("kept"))
    assert act() == 0
    assert get() == 7
    assert mf.get_last_err_msg() == "kept"
    assert mf.get_and_clear_last_err_msg() == "kept"
    assert mf.get_last_err_msg() == mf.get_and_clear_last_err_msg() == ""


def test_type_errors_pass() -> None:
    for function in (act, get):
        with pytest.raises(TypeError, match="wrong"):
            function(TypeError("wrong"))
        with pytest.raises(TypeError):
            function(no_such_argument=1)  # type: ignore[call-arg]
    assert mf.get_last_err_msg() == ""


def test_interrupts_pass() -> None:
    with pytest.raises(KeyboardInterrupt):
        act(KeyboardInterrupt())
    with pytest.raises(SystemExit):
        get(SystemExit(1))


def test_defect_of_ours_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("memfabric_hybrid.api.boundary")
    logger.addHandler(caplog.handler)
    try:
        assert act(ZeroDivisionError("ours")) == -1
    finally:
        logger.removeHandler(caplog.handler)
    assert "unexpected ZeroDivisionError: ours" in mf.get_last_err_msg()
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].exc_info[0] is ZeroDivisionError


def test_signature_and_docstring_stay() -> None:
    assert list(inspect.signature(act).parameters) == ["failure", "unused"]
    assert act.__doc__ == "What it does."
    assert act.__annotations__["return"] == "int"


def test_codes_meanings_and_exceptions_are_one_table() -> None:
    assert set(MEANINGS) == set(Code)
    for code, meaning in MEANINGS.items():
        assert meaning.meaning.endswith(".")
        assert meaning.remedy.endswith(".")
        if meaning.error is not None:
            assert meaning.error.code is code
            assert issubclass(meaning.error, FabricError)
    assert [kind for kind, _ in inspect.getmembers(errors, inspect.isclass) if kind in (errors.__doc__ or "")]


def test_codes_from_elsewhere_become_exceptions_again() -> None:
    failure = errors.failure_of(-2014, "gone")
    assert type(failure) is errors.NotConnected
    assert str(failure) == "gone"
    unknown = errors.failure_of(-77, "odd")
    assert type(unknown) is FabricError
    assert "-77" in str(unknown)


def test_check_makes_an_exception_of_a_code() -> None:
    mf.check(0)
    with pytest.raises(errors.InvalidParam, match=r"log level is 9, expected 0\.\.5"):
        mf.check(mf.set_log_level(9))
    with pytest.raises(errors.FabricError, match="unknown code -77"):
        mf.check(-77)
