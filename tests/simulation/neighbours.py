"""Between simulated processes of one host: questions, answers, and the end of a process, as `address_space/exchange`.

Everybody has a link to each neighbour that it asked. What goes over one link keeps its order; two links know nothing
of each other, so words of one process may overtake its earlier ones. What is answered is acted upon when all have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from memfabric_hybrid.address_space.exchange.answerer import SHOWN_WITHIN_S
from memfabric_hybrid.address_space.exchange.asker import LOOK_S
from memfabric_hybrid.address_space.messages import Answer, NotHere, Refuse, Request
from memfabric_hybrid.address_space.neighbour import Neighbour
from memfabric_hybrid.errors import Code
from simulation.task import Steps, Task

if TYPE_CHECKING:
    from simulation.member import Member

SHORTEST_S, LONGEST_S = 0.00002, 0.005  # of a packet between two processes, the wake-up of the thread included


class Link:
    """Made by `asker`; it is over when either process is."""

    __slots__ = ("_back_at", "_there_at", "answerer", "asker", "proved")

    def __init__(self, asker: Member, answerer: Member) -> None:
        self.asker = asker
        self.answerer = answerer
        self.proved: int | None = None  # the instance that the asker has shown to be
        self._there_at = self._back_at = 0.0

    def there(self, action: Callable[..., object], *arguments: object) -> None:
        """Happens at the answerer's, behind what was sent before."""
        world = self.asker.world
        self._there_at = max(self._there_at, world.now + world.random.uniform(SHORTEST_S, LONGEST_S))
        world.at(self._there_at, self.answerer.run, action, self, *arguments)

    def back(self, action: Callable[..., object], *arguments: object) -> None:
        world = self.asker.world
        self._back_at = max(self._back_at, world.now + world.random.uniform(SHORTEST_S, LONGEST_S))
        world.at(self._back_at, self.asker.run, action, self, *arguments)


class _Question:
    def __init__(self, number: int, task: Task | None) -> None:
        assert task is not None
        self.number = number
        self.task = task
        self.waiting: dict[int, Neighbour] = {}  # by instance
        self.replies: dict[int, Answer] = {}


class Neighbours:
    """Those of one process."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._links: dict[int, Link] = {}  # ours, by the instance at the other end
        self._incoming: dict[Link, None] = {}
        self._deferred: dict[Link, tuple[int, Request, float]] = {}  # the store has not shown who asks
        self._asked = 0
        self._question: _Question | None = None

    def is_linked(self, instance: int) -> bool:
        return instance in self._links

    def has_met(self, instance: int) -> bool:
        return instance in self._links or any(link.proved == instance for link in self._incoming)

    def ask(
        self, neighbours: Sequence[Neighbour], request: Request, until: float, expected: Callable[[Neighbour], bool]
    ) -> Steps[dict[Neighbour, Answer | None]]:
        member, world = self._member, self._member.world
        self._asked += 1
        question = self._question = _Question(self._asked, member.current)
        for neighbour in neighbours:
            link = self._links.get(neighbour.instance) or self._connect(neighbour)
            if link is not None:
                question.waiting[neighbour.instance] = neighbour
                link.there(link.answerer.neighbours.hear, question.number, request)
        while question.waiting and world.now < until:
            yield min(until, world.now + LOOK_S)
            for instance, neighbour in list(question.waiting.items()):
                if not expected(neighbour):
                    del question.waiting[instance]
        self._question = None
        return {neighbour: question.replies.get(neighbour.instance) for neighbour in neighbours}

    def _connect(self, neighbour: Neighbour) -> Link | None:
        """A process that is stopped can be reached: its kernel takes what is sent."""
        other = self._member.host.processes.get(neighbour.instance)
        if other is None:
            return None
        link = self._links[neighbour.instance] = Link(self._member, other)  # type: ignore[arg-type]
        link.answerer.neighbours._incoming[link] = None
        return link

    # --- what arrives -----------------------------------------------------------------------------------------------

    def hear(self, link: Link, number: int, request: Request) -> None:
        self._deferred.pop(link, None)
        self._answer(link, number, request, self._member.world.now + SHOWN_WITHIN_S)

    def _answer(self, link: Link, number: int, request: Request, until: float) -> None:
        member = self._member
        answer = member.answer(request)
        if answer is None and member.world.now < until:
            self._deferred[link] = (number, request, until)
            member.world.at(until, member.run, self.look_again)
            return
        answer = answer or Refuse(int(Code.NOT_CONNECTED), "the store does not show who asks")
        if not isinstance(answer, (Refuse, NotHere)):
            link.proved = request.instance
        link.back(link.asker.neighbours.hear_answer, number, answer)

    def look_again(self) -> None:
        """The store has shown something, or it is too late for that."""
        deferred, self._deferred = self._deferred, {}
        for link, (number, request, until) in deferred.items():
            self._answer(link, number, request, until)

    def hear_answer(self, link: Link, number: int, answer: Answer) -> None:
        question, instance = self._question, link.answerer.instance
        if question is not None and question.number == number and instance in question.waiting:
            question.replies[instance] = answer
            self._settle(question, instance)

    def _settle(self, question: _Question, instance: int) -> None:
        question.waiting.pop(instance, None)
        if not question.waiting:
            question.task.wake()

    # --- ends -------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Our process is over; the kernel tells the others."""
        for link in self._links.values():
            link.there(link.answerer.neighbours.asker_has_ended)
        for link in self._incoming:
            link.back(link.asker.neighbours.answerer_has_ended)

    def asker_has_ended(self, link: Link) -> None:
        self._incoming.pop(link, None)
        self._deferred.pop(link, None)
        if link.proved is not None:
            self._member.lost(link.proved)

    def answerer_has_ended(self, link: Link) -> None:
        instance = link.answerer.instance
        if self._links.pop(instance, None) is not None:
            self._member.lost(instance)
        if self._question is not None and instance in self._question.waiting:
            self._settle(self._question, instance)
