"""Every example runs as a user would run it, ends with 0, and says what it promises to show."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from docs import runs

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LINES_LIMIT = 60

# Regular expressions; each must match a whole line of the output.
EXPECTED: dict[str, tuple[str, ...]] = {
    "01_hello_pool.py": (
        r"rank 0 with its memory at 0x[0-9a-f]+ got: hello from rank 1",
        r"rank 1 with its memory at 0x[0-9a-f]+ got: hello from rank 0",
    ),
    "02_copy_types.py": (
        r"L2G to rank 1, G2L back: the same 4096 bytes",
        r"H2G to rank 1, G2H back: the same 4096 bytes",
        r"L2GH to rank 1, GH2L back: the same 4096 bytes",
        r"H2GH to rank 1, GH2H back: the same 4096 bytes",
        r"AUTO to rank 1, AUTO back: the same 4096 bytes",
        r"G2G from rank 1 to rank 2, done by rank 0: .*",
        r"H2GH into HBM: -2000, .* must be global host memory, but 0x[0-9a-f]+ is rank 1's HBM.*",
    ),
    "03_batches_and_2d.py": (
        r"batch: 1024 pieces of 4096 bytes, each where it belongs",
        r"batch with one bad piece: -2000, piece 1023 of 1024 .*: bm object 0: .*",
        r"2D: a tile of 64 rows and 32 columns out of a matrix of 512 by 512",
    ),
    "04_streams_and_await.py": (
        r"wait: 8 asynchronous copies have arrived, in order",
        r"await: 4 copies on one stream, 4 on the other",
    ),
    "05_numpy_arrays.py": (
        r"1/1² \+ 1/2² \+ … \+ 1/400000² = 1\.64493; π²/6 = 1\.64493",
        r"rank 3: the array outlives the pool: 400000",
    ),
    "06_group_events.py": (
        r"rank 1: JOIN_EVENT",
        r"rank 1: LEAVE_EVENT",
        r"copy to the dead: -2014, .*rank 1.*",
        r"rank 1: JOIN_EVENT, which is the newcomer",
    ),
    "07_growing_memory.py": (
        r"rank 1 starts with 4 MiB of 16 MiB",
        r"rank 1 has 12 MiB now",
        r"behind that end: -2000, .* which has 12582912 bytes: .*",
        r"beyond the limit: -2000, .*max_dram_size.*",
    ),
    "08_own_store.py": (
        r"rank 1: copies need no store, rank 0 wrote to me",
        r"rank 2: left and joined again through the new store",
    ),
    "09_launched.py": (r"rank 0 of 1 got: hello from rank 0 \(directly\)",),
    "10_ring_shift.py": (
        r"rank 0: 1000 numbers from rank 2, put and fetched",
        r"rank 1: 1000 numbers from rank 0, put and fetched",
    ),
    "11_all_reduce_numba.py": (
        r"one shot: 1048576 floats of 2 ranks in [0-9.]+ ms, as numpy says",
        r"in place: 1048576 floats of 2 ranks in [0-9.]+ ms, as numpy says",
        r"ring: 1048576 floats of 2 ranks in [0-9.]+ ms, as numpy says",
    ),
    "12_all_reduce_cpp.py": (
        r"one shot: 1048576 floats of 3 ranks in [0-9.]+ ms, as numpy says",
        r"in place: 1048576 floats of 3 ranks in [0-9.]+ ms, as numpy says",
        r"ring: 1048576 floats of 3 ranks in [0-9.]+ ms, as numpy says",
    ),
    "13_tiled_matmul.py": (r"rank 1: 8 tiles computed here, all 16 as numpy says",),
    "20_moving_kv_caches.py": (
        r"private: 8 blocks of 61 layers, [0-9.]+ GB/s, all bytes right",
        r"trans_malloc: 8 blocks of 61 layers, [0-9.]+ GB/s, all bytes right",
    ),
    "21_buffers_and_await.py": (
        r"1 block: sum 262144",
        r"8 blocks: sum 2097152",
        r"beyond the cache: session .* are not all inside memory that is registered there now.*",
    ),
    "22_offload.py": (
        r"a peer has filled 1024 rows",
        r"rows 3, 1000, 17 are together now",
        r"freed twice: -2007, .*",
    ),
}
DEMO = (
    r"4 processes, one pool",
    r" +3 +\d+ +0x[0-9a-f]{12} +0x[0-9a-f]{12}",
    r"  copy_data to every rank and back .* ok",
    r"  copy_data_batch, 512 scattered pieces, numpy arguments .* ok",
    r"  copy_data_2d, a tile of a matrix .* ok",
    r"  asynchronous copies with wait\(\), streams .* ok",
    r"  direct stores and loads through numpy arrays .* ok",
    r"  4 KiB +[0-9.]+ µs +memcpy +[0-9.]+ µs +[0-9.]+ × as fast .*",
    r"  8 MiB +[0-9.]+ GB/s +memcpy +[0-9.]+ GB/s +[0-9.]+ × as fast .*",
    r"  rank 2: -2014 after -?[0-9.]+ ms .*rank 3.*",
    r"  a newcomer, pid \d+, has rank 3 and its addresses again: .*",
    r"Everything is as it should be, and nothing is left behind\.",
)


def run(file: str, *arguments: str, launcher: tuple[str, ...] = (), **variables: str) -> str:
    return runs.run(runs.AS_IT_IS, str(EXAMPLES / file), *arguments, launcher=launcher, **variables)


def check_lines(output: str, expected: tuple[str, ...]) -> None:
    lines = output.splitlines()
    missing = [pattern for pattern in expected if not any(re.fullmatch(pattern, line) for line in lines)]
    assert not missing, f"no line matches {missing}:\n{output}"


def test_every_numbered_example_is_tested_and_short() -> None:
    files = sorted(EXAMPLES.glob("[0-9]*.py"))
    assert [file.name for file in files] == sorted(EXPECTED)
    for file in files:
        assert len(file.read_text(encoding="utf-8").splitlines()) <= LINES_LIMIT, f"{file.name} is too long"


@pytest.mark.parametrize("file", sorted(EXPECTED))
def test_example(file: str) -> None:
    check_lines(run(file), EXPECTED[file])


def test_ranks_of_mpirun(store_url: str) -> None:
    """A real one, of Open MPI; root is nothing that it likes."""
    mpirun = (str(Path(sys.executable).with_name("mpirun")), "--allow-run-as-root", "--oversubscribe", "-n", "3")
    output = run("09_launched.py", launcher=mpirun, MF_CONFIG_STORE_URL=store_url)
    check_lines(
        output, tuple(rf"rank {rank} of 3 got: hello from rank {(rank - 1) % 3} \(directly\)" for rank in range(3))
    )


@pytest.mark.parametrize(
    ("rank", "world_size"), [("RANK", "WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")]
)
def test_ranks_of_other_launchers(store_url: str, rank: str, world_size: str) -> None:
    """Their variables; each rank counts as a host of its own, so everything goes over the network."""
    with ThreadPoolExecutor(2) as pool:
        outputs = pool.map(
            lambda number: run(
                "09_launched.py",
                **{
                    rank: str(number),
                    world_size: "2",
                    "MF_CONFIG_STORE_URL": store_url,
                    "MF_HOST_IDENTITY": f"host {number}",
                },
            ),
            range(2),
        )
        for number, output in enumerate(outputs):
            check_lines(output, (rf"rank {number} of 2 got: hello from rank {1 - number} \(over the network\)",))


def test_demo() -> None:
    check_lines(run("demo.py", "--ranks", "4", "--size-mib", "8"), DEMO)


def test_demo_says_what_its_options_may_be() -> None:
    refused = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py"), "--ranks", "2"],
        capture_output=True,
        text=True,
        timeout=runs.DEADLINE_S,
    )
    assert refused.returncode == 2
    assert "--ranks goes from 3 to 64" in refused.stderr
