"""Runs a config store until it is told to stop: `python -m memfabric_hybrid.launch_ascend_mf_store`.

The address comes from MF_CONFIG_STORE_URL (or ASCEND_MF_STORE_URL), the log level from MF_LOG_LEVEL (or
ASCEND_MF_LOG_LEVEL), what protects it from MF_CONFIG_STORE_TOKEN and MF_CONFIG_STORE_TLS_INFO. SIGINT and
SIGTERM end it cleanly.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

import memfabric_hybrid as mf
from memfabric_hybrid import settings
from memfabric_hybrid.store import parse_url


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0 after a signal, else the code of `create_config_store`, which the log explains."""
    parser = argparse.ArgumentParser(
        prog="python -m memfabric_hybrid.launch_ascend_mf_store",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
    )
    _, ignored = parser.parse_known_args(arguments)
    if ignored:
        print(f"{parser.prog}: ignores {' '.join(ignored)}; see --help", file=sys.stderr)
    url = settings.text(settings.STORE_URL)
    if not url:
        raise ValueError(f"set {' or '.join(settings.STORE_URL.names)} to the address of the store, tcp://host:port")
    mf.set_log_level(settings.log_level())
    # Blocked first, so that a signal between start and wait is not lost.
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    code = mf.create_config_store(url)
    if code != 0:
        return code
    if parse_url(url).scheme == "etcd":
        print(f"nothing runs here: an etcd, as the store at {url}, runs by itself", end="", flush=True)
    else:
        print(f"the config store runs at {url}", end="", flush=True)
    print("; SIGINT (Ctrl-C) or SIGTERM ends this", flush=True)
    signal.sigwait(signals)
    mf.uninitialize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
