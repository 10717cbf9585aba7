"""Answers, and requests that have to wait until the store has shown who asks; without a thread, step by step."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator, Sequence

import pytest

from memfabric_hybrid._native import MAX_PACKET_BYTES, Endpoint
from memfabric_hybrid.address_space.exchange import answerer
from memfabric_hybrid.address_space.exchange import packet as packets
from memfabric_hybrid.address_space.exchange.answerer import Answerer, Wait
from memfabric_hybrid.address_space.messages import (
    Accept,
    Answer,
    Done,
    NotHere,
    Offer,
    Refuse,
    Request,
    Withdraw,
    decode_answer,
    encode,
)
from memfabric_hybrid.errors import Code
from memfabric_hybrid.machine.peer_credentials import OtherUser
from memfabric_hybrid.membership import rank_socket
from support.neighbours import THEIRS, memory_file, share

OFFER = Offer("bm/0", share(THEIRS))


class Neighbours:
    """An answerer without its thread, the decision it is given, and the other end of each connection."""

    def __init__(self) -> None:
        self.decision: Answer | Exception | Wait = Done()
        self.seen: list[bytes] = []
        self.lost: list[int] = []
        self.strangers: list[OtherUser] = []
        self.name = f"test/{secrets.token_hex(8)}"
        self.endpoint = Endpoint.open(rank_socket.bind(self.name).detach())
        self.answerer = Answerer(self.handle, self.lost.append, self.strangers.append, self.endpoint)
        self._theirs: list[socket.socket] = []

    def handle(
        self, request: Request, fds: Sequence[int], other_user: OtherUser | None
    ) -> tuple[Answer, Sequence[int]] | Wait:
        self.seen += [os.pread(fd, 100, 0) for fd in fds]
        if isinstance(self.decision, Exception):
            raise self.decision
        return self.decision if isinstance(self.decision, Wait) else (self.decision, ())

    def connect(self) -> socket.socket:
        theirs = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.connect("\0" + self.name)
        theirs.settimeout(0)
        self._theirs.append(theirs)
        self.serve()
        return theirs

    def serve(self) -> None:
        for link in self.endpoint.wait(0)[0]:
            self.answerer.admit(link)
            packet = packets.receive(link)
            if packet is not None:
                self.answerer.hear(link, packet)

    def close(self) -> None:
        self.answerer.close()
        self.endpoint.close()
        for sock in self._theirs:
            sock.close()


@pytest.fixture
def neighbours() -> Iterator[Neighbours]:
    neighbours = Neighbours()
    yield neighbours
    neighbours.close()


def ask(sock: socket.socket, number: int, request: Request = OFFER) -> None:
    with memory_file(b"shown") as fd:
        socket.send_fds(sock, [packets.NUMBER.pack(number) + encode(request)], [fd])


def answer(sock: socket.socket) -> tuple[int, Answer]:
    content = sock.recv(MAX_PACKET_BYTES)
    return packets.NUMBER.unpack_from(content)[0], decode_answer(content[packets.NUMBER.size :])


def is_over(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False


def test_an_answer_repeats_the_number(neighbours: Neighbours) -> None:
    one, other = neighbours.connect(), neighbours.connect()
    ask(one, 5)
    ask(other, 6)
    neighbours.serve()
    assert (answer(one), answer(other)) == ((5, Done()), (6, Done()))
    assert neighbours.seen == [b"shown", b"shown"]


def test_whoever_is_not_known_yet_waits(neighbours: Neighbours) -> None:
    one = neighbours.connect()
    neighbours.decision = Wait.FOR_THE_STORE
    ask(one, 5)
    neighbours.serve()
    assert neighbours.answerer.awaits_news
    assert neighbours.answerer.look_again(), "nothing is known yet"
    assert not is_over(one)
    neighbours.decision = Accept(share(1))
    assert not neighbours.answerer.look_again()
    assert answer(one) == (5, Accept(share(1)))
    assert neighbours.seen == [b"shown"] * 3, "its descriptors were kept"


def test_nobody_waits_for_ever(neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answerer, "SHOWN_WITHIN_S", 0.0)
    one = neighbours.connect()
    neighbours.decision = Wait.FOR_THE_STORE
    ask(one, 5)
    neighbours.serve()
    _, refusal = answer(one)
    assert isinstance(refusal, Refuse)
    assert refusal.code == Code.NOT_CONNECTED
    assert "the store does not show rank 0 of 'bm/0'" in refusal.sentence
    assert not neighbours.answerer.awaits_news


def test_copies_are_waited_for_as_long_as_they_run(neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answerer, "SHOWN_WITHIN_S", 0.0)
    one = neighbours.connect()
    neighbours.decision = Wait.FOR_COPIES
    ask(one, 5)
    neighbours.serve()
    assert neighbours.answerer.look_again()
    neighbours.decision = Accept(share(1))
    assert not neighbours.answerer.look_again()
    assert answer(one) == (5, Accept(share(1)))


def test_only_so_many_wait(neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answerer, "MOST_DEFERRED", 1)
    one, other = neighbours.connect(), neighbours.connect()
    neighbours.decision = Wait.FOR_THE_STORE
    ask(one, 5)
    neighbours.serve()
    ask(other, 6)
    neighbours.serve()
    assert isinstance(answer(other)[1], Refuse)
    assert not is_over(one)


def test_whoever_asks_anew_waits_for_the_earlier_answer_no_more(neighbours: Neighbours) -> None:
    one = neighbours.connect()
    neighbours.decision = Wait.FOR_THE_STORE
    ask(one, 5)
    neighbours.serve()
    neighbours.decision = Done()
    ask(one, 6)
    neighbours.serve()
    assert answer(one) == (6, Done())
    assert not neighbours.answerer.awaits_news
    assert not neighbours.answerer.look_again()
    assert not is_over(one)


def test_whoever_hangs_up_waits_no_more(neighbours: Neighbours) -> None:
    one = neighbours.connect()
    neighbours.decision = Wait.FOR_THE_STORE
    ask(one, 5)
    neighbours.serve()
    one.close()
    neighbours.serve()
    assert not neighbours.answerer.awaits_news
    assert neighbours.lost == [], "nobody knows who it was"


@pytest.mark.parametrize("decision", [Refuse(-1, "no"), NotHere()])
def test_whoever_has_not_proved_itself_cannot_be_lost(neighbours: Neighbours, decision: Answer) -> None:
    one = neighbours.connect()
    neighbours.decision = decision
    ask(one, 5)
    neighbours.serve()
    assert not neighbours.answerer.has_met(THEIRS)
    one.close()
    neighbours.serve()
    assert neighbours.lost == []


def test_whoever_has_proved_itself_is_missed(neighbours: Neighbours) -> None:
    one = neighbours.connect()
    ask(one, 5)
    neighbours.serve()
    assert neighbours.answerer.has_met(THEIRS)
    one.close()
    neighbours.serve()
    assert neighbours.lost == [THEIRS]
    assert not neighbours.answerer.has_met(THEIRS)


def test_a_defect_ends_one_connection_and_nothing_else(
    neighbours: Neighbours, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = neighbours.connect(), neighbours.connect()
    neighbours.decision = RuntimeError("a defect")
    ask(one, 5)
    neighbours.serve()
    assert is_over(one)
    neighbours.decision = Done()
    ask(other, 6, Withdraw("bm/0", 1, THEIRS, 1))
    neighbours.serve()
    assert answer(other) == (6, Done())
    assert "a defect" in capsys.readouterr().err
