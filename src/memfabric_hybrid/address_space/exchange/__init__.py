"""Between the processes of one host: questions, answers with descriptors, and the quickest news of a death.

program's threads ── Asker ── Links ─┐ a link to every neighbour that we asked
                                     │
neighbours ──────── Answerer ────────┴ Exchange: one thread for all that comes in, at a native endpoint
"""

from memfabric_hybrid.address_space.exchange.answerer import Wait
from memfabric_hybrid.address_space.exchange.asker import Reply
from memfabric_hybrid.address_space.exchange.exchange import Exchange
from memfabric_hybrid.address_space.neighbour import Neighbour

__all__ = ["Exchange", "Neighbour", "Reply", "Wait"]
