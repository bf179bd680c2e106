"""The calls of libibverbs that one reliable connection needs, through ctypes: the library that NCCL loads, too. Travels to nodes.

No tool has to be installed, the GID index is the one that NCCL takes, retries end, and a failure has its error number or status.
Source: rdma-core, libibverbs/verbs.h (IBVERBS_1.1; these structures are the same in every release since), ibv_modify_qp(3).
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, addressof, byref, c_int, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, List, NamedTuple, Optional

LIBRARY = "libibverbs.so.1"
SEND_OPCODE, SIGNALED, RC, WC_RECV = 2, 2, 2, 128
INIT, RTR, RTS = 1, 2, 3
MASK_INIT, MASK_RTR, MASK_RTS = 57, 1216897, 77313
"""Which fields ibv_modify_qp takes in the three steps of an RC connection."""

TIMEOUT, RETRIES = 14, 3
"""67 ms (up to four times that on real cards) and as many resends: a lost message is known within 1.1 s. NCCL is more patient."""

POLL_CQ, POST_SEND, POST_RECV = 96, 208, 216
"""Offsets of the driver's functions in `struct ibv_context` (`ops` begins at 8); verbs.h calls them inline."""


class Cap(Structure):
    _fields_ = [(name, c_uint32) for name in ("send_wr", "recv_wr", "send_sge", "recv_sge", "inline_data")]


class InitAttr(Structure):
    _fields_ = [("context", c_void_p), ("send_cq", c_void_p), ("recv_cq", c_void_p), ("srq", c_void_p), ("cap", Cap),
                ("qp_type", c_uint32), ("sq_sig_all", c_int)]  # fmt: skip


class Address(Structure):
    _fields_ = [("dgid", c_uint64 * 2), ("flow_label", c_uint32), ("sgid_index", c_uint8), ("hop_limit", c_uint8),
                ("traffic_class", c_uint8), ("dlid", c_uint16), ("sl", c_uint8), ("src_path_bits", c_uint8),
                ("static_rate", c_uint8), ("is_global", c_uint8), ("port_num", c_uint8)]  # fmt: skip


class Attr(Structure):
    _fields_ = [*((name, c_uint32) for name in ("qp_state", "cur_qp_state", "path_mtu", "path_mig_state", "qkey", "rq_psn", "sq_psn",
                                                "dest_qp_num", "access")),
                ("cap", Cap), ("ah", Address), ("alt_ah", Address), ("pkey_index", c_uint16), ("alt_pkey_index", c_uint16),
                *((name, c_uint8) for name in ("notify", "draining", "max_rd", "max_dest_rd", "min_rnr_timer", "port_num", "timeout",
                                               "retry_cnt", "rnr_retry", "alt_port_num", "alt_timeout")),
                ("rate_limit", c_uint32)]  # fmt: skip


class Sge(Structure):
    _fields_ = [("addr", c_uint64), ("length", c_uint32), ("lkey", c_uint32)]


class RecvRequest(Structure):
    _fields_ = [("wr_id", c_uint64), ("next", c_void_p), ("sg_list", POINTER(Sge)), ("num_sge", c_int)]


class SendRequest(Structure):
    _fields_ = [("wr_id", c_uint64), ("next", c_void_p), ("sg_list", POINTER(Sge)), ("num_sge", c_int), ("opcode", c_uint32),
                ("flags", c_uint32), ("imm", c_uint32), ("rest", c_uint64 * 11)]  # fmt: skip


class Completion(Structure):
    _fields_ = [("wr_id", c_uint64), ("status", c_uint32), ("opcode", c_uint32), ("vendor", c_uint32), ("byte_len", c_uint32),
                ("rest", c_uint32 * 6)]  # fmt: skip


class Done(NamedTuple):
    """One entry of a completion queue."""

    received: bool
    status: int
    """0 for success; `enum ibv_wc_status`."""


class VerbsError(Exception):
    """A call failed; `code` is the error number."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__("%s: %s (errno %d)" % (what, os.strerror(code), code))
        self.code = code


class Library:
    """Raises OSError when libibverbs cannot be loaded."""

    def __init__(self) -> None:
        lib = ctypes.CDLL(LIBRARY, use_errno=True)
        for name in (
            "get_device_list",
            "open_device",
            "alloc_pd",
            "reg_mr",
            "create_cq",
            "create_qp",
            "get_device_name",
        ):
            getattr(lib, "ibv_" + name).restype = c_void_p
        lib.ibv_get_device_name.restype = ctypes.c_char_p
        lib.ibv_wc_status_str.restype = ctypes.c_char_p
        lib.ibv_reg_mr.argtypes = [c_void_p, c_void_p, ctypes.c_size_t, c_int]
        lib.ibv_create_cq.argtypes = [c_void_p, c_int, c_void_p, c_void_p, c_int]
        lib.ibv_modify_qp.argtypes = [c_void_p, POINTER(Attr), c_int]
        self._lib = lib
        self._devices: Dict[str, int] = {}

    def call(self, name: str, *arguments: Any) -> int:
        """A function that gives a pointer. Raises VerbsError for NULL."""
        ctypes.set_errno(0)
        pointer = getattr(self._lib, "ibv_" + name)(*arguments)
        if not pointer:
            raise VerbsError("ibv_" + name, ctypes.get_errno())
        return int(pointer)

    def status(self, number: int) -> str:
        return str(self._lib.ibv_wc_status_str(number).decode())

    def device(self, name: str) -> int:
        """The opened device, opened once. Raises VerbsError."""
        if name not in self._devices:
            count = c_int()
            listed = ctypes.cast(self.call("get_device_list", byref(count)), POINTER(c_void_p))
            for index in range(count.value):
                if self._lib.ibv_get_device_name(c_void_p(listed[index])).decode() == name:
                    self._devices[name] = self.call("open_device", c_void_p(listed[index]))
            if name not in self._devices:
                raise VerbsError("ibv_get_device_list does not have " + name, 2)
        return self._devices[name]

    def check(self, what: str, code: int) -> None:
        if code:
            raise VerbsError(what, abs(code))

    def modify(self, qp: int, attr: Attr, mask: int, what: str) -> None:
        self.check(what, self._lib.ibv_modify_qp(qp, byref(attr), mask))

    def port(self, context: int, number: int) -> Dict[str, int]:
        """LID and active MTU (1 for 256 bytes to 5 for 4096)."""
        raw = (c_uint8 * 256)()
        self.check("ibv_query_port", self._lib.ibv_query_port(c_void_p(context), c_uint8(number), raw))
        return {"mtu": c_uint32.from_buffer(raw, 8).value, "lid": c_uint16.from_buffer(raw, 34).value}

    def gid(self, context: int, number: int, index: int) -> bytes:
        raw = (c_uint8 * 16)()
        if self._lib.ibv_query_gid(c_void_p(context), c_uint8(number), c_int(index), raw):
            raise VerbsError("ibv_query_gid of index %d" % index, ctypes.get_errno())
        return bytes(raw)

    def destroy(self, kind: str, pointer: int) -> None:
        getattr(self._lib, "ibv_" + kind)(c_void_p(pointer))


def operation(context: int, offset: int) -> Any:
    """One of the driver's functions: `int f(object, …, …)`."""
    address = c_uint64.from_address(context + offset).value
    return ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)(address)


def number_of(qp: int) -> int:
    return c_uint32.from_address(qp + 52).value


def key_of(region: int) -> int:
    return c_uint32.from_address(region + 36).value


def poll(context: int, queue: int) -> List[Done]:
    """What has come since; empty for nothing."""
    entries = (Completion * 8)()
    poll_cq = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_void_p)(c_uint64.from_address(context + POLL_CQ).value)
    count = poll_cq(queue, 8, addressof(entries))
    return [Done(bool(one.wr_id), one.status) for one in entries[: max(0, count)]]


def post(context: int, qp: int, memory: int, length: int, key: int, *, receive: bool) -> Optional[int]:
    """Error number, None for success. `wr_id` tells receives (1) from sends (0): with an error the opcode does not."""
    part = Sge(memory, length, key)
    request: Any = (
        RecvRequest(1, None, ctypes.pointer(part), 1)
        if receive
        else SendRequest(0, None, ctypes.pointer(part), 1, SEND_OPCODE, SIGNALED)
    )
    bad = c_void_p()
    code = operation(context, POST_RECV if receive else POST_SEND)(qp, addressof(request), addressof(bad))
    return abs(code) or None
