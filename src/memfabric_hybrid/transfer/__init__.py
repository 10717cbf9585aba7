"""Transfer: one-sided reads and writes into the memory of another process."""

from __future__ import annotations

from memfabric_hybrid.transfer.engine import TransferEngine
from memfabric_hybrid.transfer.notifications import Notification
from memfabric_hybrid.transfer.ticket import Ticket

__all__ = ["Notification", "Ticket", "TransferEngine"]
