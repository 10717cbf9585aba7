"""What etcd's gateway answers, as this package reads it."""

from __future__ import annotations

import subprocess
import sys

from memfabric_hybrid.store.etcd.gateway import api

FIRST_ANSWERS = """
import importlib, sys, threading
from memfabric_hybrid.store.etcd.gateway import api

sys.setswitchinterval(1e-6)
for _ in range(200):
    importlib.reload(api)  # types that nothing has been decoded to
    together = threading.Barrier(2)

    def decode():
        together.wait()
        assert api.decode(b'{"header": {"revision": "7"}, "kvs": [{"key": "aw=="}]}', api.Found).header.revision == 7

    threads = [threading.Thread(target=decode) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_two_threads_may_have_the_first_answer() -> None:
    """The one that enters and the event thread: a type that is new to msgspec ended the process."""
    subprocess.run([sys.executable, "-c", FIRST_ANSWERS], check=True, timeout=60)


def test_numbers_are_text_and_bytes_are_base64() -> None:
    found = api.decode(b'{"kvs": [{"key": "aw==", "value": "dg==", "mod_revision": "3"}]}', api.Found)
    assert found.kvs == [api.KeyValue(b"k", b"v", mod_revision=3)]
