"""What neighbours say to each other, as bytes."""

from __future__ import annotations

import pytest

from memfabric_hybrid.address_space.messages import (
    Accept,
    Done,
    Nonsense,
    NotHere,
    Offer,
    Refuse,
    Withdraw,
    decode_answer,
    decode_request,
    encode,
)
from support.neighbours import share


def test_requests_survive_the_wire() -> None:
    for request in (Offer("bm/0", share(5)), Withdraw("bm/1", 1, 2, 3)):
        assert decode_request(encode(request)) == request


def test_answers_survive_the_wire() -> None:
    for answer in (Accept(share(5)), NotHere(), Refuse(-2000, "why"), Done()):
        assert decode_answer(encode(answer)) == answer


def test_an_answer_is_no_request_and_a_request_no_answer() -> None:
    with pytest.raises(Nonsense, match="no request"):
        decode_request(encode(Done()))
    with pytest.raises(Nonsense, match="no answer"):
        decode_answer(encode(Withdraw("bm/1", 1, 2, 3)))


@pytest.mark.parametrize("rank", [-1, 1024])
def test_a_rank_that_cannot_be_is_nonsense(rank: int) -> None:
    with pytest.raises(Nonsense):
        decode_request(encode(Withdraw("bm/1", rank, 2, 3)))
