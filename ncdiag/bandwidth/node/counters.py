"""What the network did meanwhile, as the kernel counts it."""

from __future__ import annotations

import glob
import os
import socket
import struct
from typing import Dict

TCP_INFO_BYTES = 232
_HCA_COUNTERS = (
    "local_ack_timeout_err",
    "packet_seq_err",
    "out_of_sequence",
    "roce_adp_retrans",
    "rnr_nak_retry_err",
    "out_of_buffer",
    "port_rcv_errors",
    "port_xmit_discards",
    "symbol_error",
    "link_error_recovery",
    "link_downed",
)


def tcp_totals() -> Dict[str, int]:
    """Segments sent and sent again on this process's own TCP connections that leave the machine (TCP_INFO: tcpi_data_segs_out, tcpi_total_retrans)."""
    sent = again = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink("/proc/self/fd/" + name).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as copy:
                if copy.family not in (socket.AF_INET, socket.AF_INET6) or copy.type != socket.SOCK_STREAM:
                    continue
                if copy.getsockname()[0] == copy.getpeername()[0]:
                    continue
                info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        except (OSError, ValueError):
            continue
        if len(info) >= 160:
            again += struct.unpack_from("I", info, 100)[0]
            sent += struct.unpack_from("I", info, 156)[0]
    return {"segments": sent, "retransmitted": again}


def hca_totals() -> Dict[str, int]:
    """Error counters of all RDMA ports, summed by name (/sys/class/infiniband/*/ports/*/{counters,hw_counters})."""
    totals: Dict[str, int] = {}
    for path in glob.glob("/sys/class/infiniband/*/ports/*/*counters/*"):
        name = os.path.basename(path)
        if name in _HCA_COUNTERS:
            try:
                with open(path) as file:
                    totals[name] = totals.get(name, 0) + int(file.read())
            except (OSError, ValueError):
                continue
    return totals
