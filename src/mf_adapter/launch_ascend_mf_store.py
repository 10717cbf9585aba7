"""`python -m mf_adapter.launch_ascend_mf_store`: the launcher of `memfabric_hybrid` under its older name."""

from __future__ import annotations

import sys

from memfabric_hybrid.launch_ascend_mf_store import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
