"""When an etcd served nobody: it was starved, or its nodes could not agree on a leader.

A thread writes a key all the time, through whichever node answers, with requests of its own: what members may be blamed
for is not asked of their client.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import threading
import time
from collections import deque
from collections.abc import Sequence

from support.etcd import EtcdNode

EVERY_S = 0.1
ANSWER_S = 0.3  # a node that takes longer is left for the next one
KEY, VALUE = (base64.b64encode(word).decode() for word in (b"pulse", b"beat"))
BODY = json.dumps({"key": KEY, "value": VALUE})


class EtcdPulse(threading.Thread):
    """`nodes` come and go meanwhile."""

    def __init__(self, nodes: Sequence[EtcdNode]) -> None:
        super().__init__(name="etcd pulse", daemon=True)
        self._nodes = itertools.cycle(nodes)
        self._node = next(self._nodes)
        self._served_at = time.monotonic()
        self._spans: deque[tuple[float, float]] = deque()
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(EVERY_S):
            if self._is_served():
                now = time.monotonic()
                self._spans.append((self._served_at, now))
                self._served_at = now
            else:
                self._node = next(self._nodes)

    def _is_served(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._node.client_port, timeout=ANSWER_S)
        try:
            connection.request("POST", "/v3/kv/put", BODY)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def take_spans(self, longer_than_s: float) -> list[tuple[float, float]]:
        """From when to when nobody was served, since the last call."""
        spans = [self._spans.popleft() for _ in range(len(self._spans))]
        now, served_at = time.monotonic(), self._served_at
        return [span for span in [*spans, (served_at, now)] if span[1] - span[0] > longer_than_s]

    def stop(self) -> None:
        self._stopping.set()
        self.join()
