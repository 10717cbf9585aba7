"""`mf_adapter`: the same objects under the name that inference engines import, and its launcher."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import memfabric_hybrid as mf


def test_adapter_names() -> None:
    import mf_adapter
    from mf_adapter import launch_ascend_mf_store

    assert mf_adapter.TransferEngine is mf.TransferEngine
    assert set(mf_adapter.__all__) == {"TransferEngine", "create_config_store", "set_conf_store_tls", "set_log_level"}
    assert callable(launch_ascend_mf_store.main)


def test_adapter_launcher(store_url: str) -> None:
    environment = {**os.environ, "ASCEND_MF_STORE_URL": store_url}
    command = [sys.executable, "-m", "mf_adapter.launch_ascend_mf_store"]
    with subprocess.Popen(command, env=environment) as launcher:
        port = int(store_url.rpartition(":")[2])
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(20) == 0
