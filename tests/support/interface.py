"""The documented interface as data: what programs written for it rely on. The contract test walks it.

Written down by hand from the documents, not derived from the code: a difference is a mistake on one of the two sides.
"""

from __future__ import annotations

from typing import Any

REQUIRED = object()  # a parameter without a default
U32_MAX = 4294967295

TOP_LEVEL_FUNCTIONS: dict[str, dict[str, Any]] = {
    "initialize": {"flags": 0},
    "uninitialize": {},
    "set_log_level": {"level": REQUIRED},
    "set_extern_logger": {"fn": REQUIRED},
    "set_conf_store_tls": {"enable": REQUIRED, "tls_info": REQUIRED},
    "set_conf_store_tls_key": {"tls_pk": REQUIRED, "tls_pk_pw": REQUIRED, "py_decrypt_func": REQUIRED},
    "get_last_err_msg": {},
    "get_and_clear_last_err_msg": {},
    "create_config_store": {"store_url": REQUIRED},
    "get_include_path": {},
    "get_lib_path": {},
}
TOP_LEVEL_OTHERS = {"bm", "offload", "shm", "TransferEngine", "TransferOpcode", "TransDataOpType"}
BEYOND_THE_DOCUMENTS = {"Notification", "Route", "Stream", "Ticket", "check", "errors", "get_cluster_status"}

SDMA = 1
BM_FUNCTIONS: dict[str, dict[str, Any]] = {
    "initialize": {"store_url": REQUIRED, "world_size": REQUIRED, "device_id": REQUIRED, "config": REQUIRED},
    "uninitialize": {"flags": 0},
    "bm_rank_id": {},
    "create": {"id": REQUIRED, "local_dram_size": REQUIRED, "local_hbm_size": 0, "data_op_type": SDMA, "flags": 0},
    "create2": {
        "id": REQUIRED,
        "local_dram_size": REQUIRED,
        "max_dram_size": REQUIRED,
        "local_hbm_size": 0,
        "max_hbm_size": 0,
        "data_op_type": SDMA,
        "enable_56bits_gva": False,
        "flags": 0,
        "shm_fd": -1,
        "tag": "",
        "tag_op_info": "",
    },
    "update_store_url": {"store_url": REQUIRED},
}
BM_CLASSES = {"BigMemory", "BmConfig", "BmCopyType", "BmDataOpType", "BmGroupEvent", "BmMemType"}

BM_CONFIG: dict[str, int | bool] = {
    "init_timeout": 120,
    "create_timeout": 120,
    "operation_timeout": 120,
    "start_store": True,
    "start_store_only": False,
    "dynamic_world_size": False,
    "unified_address_space": True,
    "auto_ranking": True,
    "rank_id": 65535,
    "flags": 0,
}

HOST, DEVICE, LOCAL_HOST = 3, 2, 1
BIG_MEMORY: dict[str, dict[str, Any]] = {
    "join": {"flags": 0},
    "leave": {"flags": 0},
    "destroy": {},
    "local_mem_size": {"mem_type": DEVICE},
    "peer_rank_ptr": {"peer_rank": REQUIRED, "mem_type": DEVICE},
    "get_rank_id_by_gva": {"gva": REQUIRED},
    "gva_to_va": {"gva": REQUIRED, "mem_type": LOCAL_HOST},
    "extend_local_mem": {"mem_type": HOST, "size": REQUIRED},
    "register": {"addr": REQUIRED, "size": REQUIRED},
    "unregister": {"addr": REQUIRED},
    "copy_data": {
        "src_ptr": REQUIRED, "dst_ptr": REQUIRED, "size": REQUIRED, "type": REQUIRED, "flags": 0, "stream": 0,
    },
    "copy_data_batch": {
        "src_addrs": REQUIRED, "dst_addrs": REQUIRED, "sizes": REQUIRED, "count": REQUIRED, "type": REQUIRED,
        "flags": 0, "stream": 0,
    },
    "copy_data_2d": {
        "src_ptr": REQUIRED, "spitch": REQUIRED, "dst_ptr": REQUIRED, "dpitch": REQUIRED, "width": REQUIRED,
        "height": REQUIRED, "type": REQUIRED, "flags": 0,
    },
    "wait": {},
    "array": {"rank": REQUIRED, "shape": REQUIRED, "dtype": REQUIRED, "offset": 0, "mem_type": HOST},
}  # fmt: skip

OP_TYPES = {
    "SDMA": 1, "HOST_RDMA": 2, "HOST_TCP": 4, "DEVICE_RDMA": 8, "HOST_URMA": 16, "HOST_SHM": 32, "DEVICE_URMA": 64,
    "DEVICE_UBOE": 128,
}  # fmt: skip
ENUMS: dict[str, dict[str, int]] = {
    "bm.BmCopyType": {
        "L2G": 0, "G2L": 1, "G2H": 2, "H2G": 3, "L2GH": 4, "GH2L": 5, "GH2H": 6, "H2GH": 7, "G2G": 8, "AUTO": 9,
    },
    "bm.BmDataOpType": OP_TYPES,
    "bm.BmMemType": {"LOCAL_DEVICE": 0, "LOCAL_HOST": 1, "DEVICE": 2, "HOST": 3},
    "bm.BmGroupEvent": {"JOIN_EVENT": 0, "LEAVE_EVENT": 1},
    "TransDataOpType": OP_TYPES,
    "TransferOpcode": {"Read": 0, "Write": 1},
}  # fmt: skip
ALIASES = {
    "bm.BmDataOpType": {"ROCE": "HOST_RDMA"},
    "TransferOpcode": {"READ": "Read", "WRITE": "Write"},
}

CODES = {
    "OK": 0, "ERROR": -1, "INVALID_PARAM": -2000, "MALLOC_FAILED": -2001, "NO_RESOURCES": -2002, "NOT_STARTED": -2003,
    "TIMEOUT": -2004, "REPEAT_INVOKE": -2005, "DUPLICATED": -2006, "NOT_EXIST": -2007, "NOT_INIT": -2008,
    "RES_IN_USE": -2009, "PARTIAL_FAILED": -2012, "NOT_CONNECTED": -2014, "BUFFER_TOO_SMALL": -2015,
    "STORE_INTERNAL": -3000, "STORE_INVAL": -3001, "STORE_BUFEX": -3002, "STORE_PERM": -3003, "STORE_NORES": -3004,
    "STORE_NOENT": -3005, "STORE_LOCKED": -3006, "STORE_UNLOCKED": -3007,
}  # fmt: skip

# What fails in a process that has initialised nothing, and what it answers: (call, answer).
WITHOUT_INITIALIZE: list[tuple[str, tuple[Any, ...], Any]] = [
    ("bm.bm_rank_id", (), U32_MAX),
    ("bm.update_store_url", ("tcp://127.0.0.1:9000",), -2008),
    ("set_log_level", (6,), -2000),
    ("set_conf_store_tls", (False, ""), 0),
    ("set_conf_store_tls", (0, "0"), 0),
    ("create_config_store", ("nonsense",), -2000),
    ("initialize", (), 0),
    ("uninitialize", (), None),
    ("bm.uninitialize", (), None),
    ("get_last_err_msg", (), ""),
    ("get_and_clear_last_err_msg", (), ""),
]
