"""The name under which inference engines know the transfers of this library; the objects are `memfabric_hybrid`'s."""

from __future__ import annotations

from memfabric_hybrid import TransferEngine, create_config_store, set_conf_store_tls, set_log_level

__all__ = ["TransferEngine", "create_config_store", "set_conf_store_tls", "set_log_level"]
