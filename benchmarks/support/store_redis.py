"""Redis as a client of the benchmark: over its Unix socket, as our clients of one host use ours.

A barrier is a counter and a stream that the last one writes to; members are a hash and a channel that tells of changes.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import redis

from support.store_peers import FACT, NO_DEATHS, TIMEOUT_S, StorePeer

START_S = 30.0
MEMBERS = "members"  # the hash, and the channel


class RedisStore(StorePeer):
    lacks: ClassVar[dict[str, str]] = {"death": NO_DEATHS}

    def serve(self, port: int) -> int:
        command = [
            "redis-server", "--port", "0", "--unixsocket", _socket(port), "--save", "", "--appendonly", "no",
            "--maxclients", "20000",
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + START_S
        while not Path(_socket(port)).exists():
            if self._process.poll() is not None or time.monotonic() > until:
                raise SystemExit("redis-server did not start")
            time.sleep(0.02)
        return self._process.pid

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def enter(self, port: int, rank: int, size: int) -> None:
        self._rank = rank
        self._redis: Any = redis.Redis(unix_socket_path=_socket(port), socket_timeout=TIMEOUT_S)
        self._redis.incr("ranks")
        self._news: Any = self._redis.pubsub()
        self._news.subscribe(MEMBERS)
        self._news.get_message(timeout=TIMEOUT_S)  # that it is subscribed
        self._redis.pipeline().hset(MEMBERS, str(rank), FACT).publish(MEMBERS, f"+{rank}").execute()
        self._noticed(map(int, self._redis.hgetall(MEMBERS)), ())
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for message in self._news.listen():
            if message["type"] == "message":
                text = message["data"].decode()
                ranks = [int(text[1:])]
                self._noticed(*((ranks, ()) if text[0] == "+" else ((), ranks)))

    def leave(self) -> None:
        self._redis.pipeline().hdel(MEMBERS, str(self._rank)).publish(MEMBERS, f"-{self._rank}").execute()
        self._redis.close()

    def barrier(self, tag: str, number: int, rank: int, size: int) -> None:
        self._meet(f"{tag}/{number}", self._redis.incr(f"{tag}/{number}"), size)

    def _meet(self, key: str, arrived: int, size: int) -> None:
        if arrived == size:
            self._redis.xadd(f"{key}/done", {"": ""})
        else:
            self._redis.xread({f"{key}/done": "0"}, block=TIMEOUT_S * 1000)

    def all_gather(self, tag: str, number: int, rank: int, size: int, data: bytes) -> list[bytes]:
        key = f"{tag}/{number}"
        _, arrived = self._redis.pipeline(False).hset(f"{key}/parts", str(rank), data).incr(key).execute()
        self._meet(key, arrived, size)
        parts = self._redis.hgetall(f"{key}/parts")
        return [parts[b"%d" % other] for other in range(size)]

    def set(self, key: str, value: bytes) -> None:
        self._redis.set(key, value)

    def get(self, key: str) -> bytes:
        return bytes(self._redis.get(key))


def _socket(port: int) -> str:
    """Named after the port that nobody listens at."""
    return f"{tempfile.gettempdir()}/memfabric-redis-{port}.sock"
