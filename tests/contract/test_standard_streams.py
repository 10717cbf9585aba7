"""The numbers 0 to 2 are the program's, also while it has closed them: nothing of ours is ever there.

What a program prints to a closed stream must fail, and not arrive in our memory or on our sockets.
"""

from __future__ import annotations

from support.programs import run_python
from support.workers import Cluster

MEMBER = """
import ctypes, os
import memfabric_hybrid as mf
from memfabric_hybrid import bm, shm
from support import heap_worker

kept = []

def must(code):
    assert code == 0, f"{code}: {mf.get_last_err_msg()}"

def close_streams():
    for number in range(3):
        os.close(number)

def on_streams():
    return {n: os.readlink(f"/proc/self/fd/{n}") for n in range(3) if os.path.lexists(f"/proc/self/fd/{n}")}

def serve_store(store_url):
    must(mf.create_config_store(store_url))

def share_a_pool(store_url):
    config = bm.BmConfig()
    config.start_store = False
    must(bm.initialize(store_url, 2, 0, config))
    pool = bm.create(0, 2 << 20)
    must(pool.join())
    stream = mf.Stream()
    kept.extend((pool, stream, stream.notify_fd()))

def read_the_pool():
    return [ctypes.string_at(kept[0].peer_rank_ptr(rank, bm.BmMemType.HOST), 64) for rank in range(2)]

def share_a_heap(store_url):
    heap_worker.take_part(store_url, 2, start_store=False)
    heap = heap_worker.heaps[0]
    must(heap.barrier())
    must(heap.subgroup_barrier("both", 2, heap_worker.rank()))
    heap.atomic_alloc_value(4)

def open_an_engine():
    engine = mf.TransferEngine()
    must(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
    place = engine.trans_malloc(4096)
    kept.append(engine)
    return engine.session_id, place

def write_to(session, place):
    own = ctypes.create_string_buffer(b"to a peer", 64)
    must(kept[-1].transfer_sync_write(session, ctypes.addressof(own), place, 64))

def end():
    os.close(kept[2])
    kept[1].close()
    kept[-1].destroy()
    kept.clear()
    heap_worker.uninitialize()
    mf.uninitialize()
"""


def test_closed_streams_are_never_replaced_by_ours(store_url: str) -> None:
    """Two members and a store, all without streams, who show each other all kinds of memory."""
    with Cluster(3, script=MEMBER) as cluster:
        store, members = 2, (0, 1)
        cluster.call_all("close_streams")
        assert cluster.call_all("on_streams") == [{}] * 3

        def nothing_is_there(after: str) -> None:
            found = cluster.call_all("on_streams")
            assert found == [{}] * 3, f"after {after}"

        cluster.call(store, "serve_store", store_url)
        nothing_is_there("the start of a store")
        cluster.call_all("share_a_pool", store_url, indices=members)
        nothing_is_there("join")
        assert cluster.call_all("read_the_pool", indices=members) == [[bytes(64)] * 2] * 2
        cluster.call_all("share_a_heap", store_url, indices=members)
        nothing_is_there("shm.create")
        places = cluster.call_all("open_an_engine", indices=members)
        nothing_is_there("the start of an engine")
        for index, place in zip(members, reversed(places), strict=True):
            cluster.call(index, "write_to", *place)
        nothing_is_there("a transfer")
        cluster.call_all("end", indices=members)
        nothing_is_there("the end")


LOGGING = """
import ctypes, logging, os, sys, traceback
import memfabric_hybrid as mf
from memfabric_hybrid import bm, logs

class Records(logging.Handler):
    texts = []
    def emit(self, record):
        self.texts.append(record.getMessage())

sys.excepthook = lambda kind, error, trace: traceback.print_exception(error, file=sys.stdout)  # standard error is away
logging.getLogger("memfabric_hybrid").addHandler(Records())
log = logs.get("memfabric_hybrid.some_module")

def lost_with(line):
    before = logs.Log.lost_lines
    log.warning(line)
    assert Records.texts[-1] == line, Records.texts
    return logs.Log.lost_lines - before
"""


def run_logging(program: str, *arguments: str) -> None:
    """It must say that all is well, on standard output."""
    done = run_python(LOGGING + program + 'print("well", flush=True)\nos._exit(0)\n', *arguments)
    assert (done.stdout, done.returncode) == ("well\n", 0), done.stderr


def test_lines_for_a_closed_standard_error_are_counted_and_not_in_a_pool(store_url: str) -> None:
    run_logging(
        """
assert bm.initialize(sys.argv[1], 2, 0, bm.BmConfig()) == 0, mf.get_last_err_msg()
os.close(2)
pool = bm.create(0, 2 << 20)
assert pool.join() == 0, mf.get_last_err_msg()
assert not os.path.lexists("/proc/self/fd/2"), os.readlink("/proc/self/fd/2")
assert lost_with("a line for nobody") == 1
assert ctypes.string_at(pool.peer_rank_ptr(0, bm.BmMemType.HOST), 64) == bytes(64)
""",
        store_url,
    )


def test_lines_are_not_written_into_memory_that_has_standard_errors_number() -> None:
    """The program's own memory files are at risk as well: it closes the number, and the kernel gives it away."""
    run_logging("""
os.close(2)
assert os.memfd_create("the program's own") == 2
assert lost_with("a line for nobody") == 1
assert os.fstat(2).st_size == 0, os.pread(2, 100, 0)
""")


def test_lines_that_nobody_reads_are_counted() -> None:
    run_logging("""
read_end, write_end = os.pipe()
os.dup2(write_end, 2)
os.close(write_end)
assert lost_with("somebody reads it") == 0
assert b"somebody reads it" in os.read(read_end, 1000)
os.close(read_end)
assert lost_with("nobody reads it") == 1
""")


def test_lines_for_a_closed_stream_object_are_counted() -> None:
    run_logging("""
sys.stderr.close()
assert lost_with("a line for nobody") == 1
""")


def test_a_stream_object_without_a_descriptor_gets_the_lines() -> None:
    run_logging("""
import io
sys.stderr = io.StringIO()
assert lost_with("a line for the program") == 0
assert "a line for the program" in sys.stderr.getvalue()
""")
