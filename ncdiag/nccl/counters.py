"""What RDMA error counters mean: which tell of a bad link, which of lost packets, and from which rate on they matter.

Source: kernel drivers/infiniband/hw/mlx5/counters.c, core/sysfs.c, sw/rxe/rxe_hw_counters.c, hw/efa/efa_verbs.c; InfiniBand
specification (PortCounters, widths); Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst.
"""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Optional

LINK = {
    "link_downed": "the link went down",
    "link_error_recovery": "the link recovered from an error",
    "symbol_error": "symbol errors",
    "port_rcv_errors": "packets with errors",
    "local_link_integrity_errors": "integrity errors",
    "excessive_buffer_overrun_errors": "buffer overruns",
    "port_xmit_discards": "packets thrown away at sending",
}
"""counters/: a fault of cable, optics, port or the peer's port."""

LOSS = {
    "local_ack_timeout_err": "acknowledgements that never came",
    "packet_seq_err": "packets sent again after a gap",
    "implied_nak_seq_err": "packets sent again after an implied gap",
    "out_of_sequence": "packets missing or out of order",
    "duplicate_request": "packets received twice",
    "roce_adp_retrans": "adaptive retransmissions",
    "roce_adp_retrans_to": "adaptive retransmissions after a time-out",
    "roce_slow_restart": "slow restarts",
    "rx_icrc_encapsulated": "packets with a broken checksum",
    "req_transport_retries_exceeded": "connections given up after all retries",
    "completer_retry_err": "retries",
    "rcvd_seq_err": "packets sent again after a gap",
    "out_of_seq_request": "packets missing or out of order",
    "retry_exceeded_err": "connections given up after all retries",
    "retrans_timeout_events": "retransmissions after a time-out",
    "unresponsive_remote_events": "peers that did not answer",
}
"""hw_counters/ of mlx5, rxe and EFA: packets were lost on the way."""

LATE = {
    "rnr_nak_retry_err": "receiver not ready",
    "out_of_buffer": "no buffer posted",
    "send_rnr_err": "receiver not ready",
    "rcvd_rnr_err": "receiver not ready",
    "rp_cnp_ignored": "congestion notices ignored",
}
"""The receiving software was late, not the network."""

PACKETS = ("port_xmit_packets", "unicast_xmit_packets", "sent_pkts", "tx_pkts")
"""Packets sent, by driver; the first that is there counts."""

MAXIMA = {
    "symbol_error": 0xFFFF,
    "port_rcv_errors": 0xFFFF,
    "port_xmit_discards": 0xFFFF,
    "link_error_recovery": 0xFF,
    "link_downed": 0xFF,
    "local_link_integrity_errors": 0xF,
    "excessive_buffer_overrun_errors": 0xF,
}
"""Counters of the old set stop at these; a value equal to it says only `at least`."""

WRAP = 1 << 32
"""mlx5 keeps its queue counters in 32 bits."""

LOSS_PER_PACKET = 1e-6
"""Lost or repeated packets per packet sent, from which a fabric is called lossy (rule of thumb; a healthy one has none)."""

LOSS_PER_HOUR = 10.0
"""The same where packets are not counted."""

EVENTS_AT_LEAST = 10
"""Fewer are not judged: a cable that was moved once."""

FLAPS_PER_DAY = 1.0
"""A link that goes down more often than this is called flapping."""

FLAPS_AT_LEAST = 3
"""Going down once or twice belongs to booting and switch maintenance."""


class Rate(NamedTuple):
    events: int
    per_packet: Optional[float]
    per_hour: Optional[float]

    @property
    def matters(self) -> bool:
        if self.events < EVENTS_AT_LEAST:
            return False
        if self.per_packet is not None:
            return self.per_packet > LOSS_PER_PACKET
        return self.per_hour is None or self.per_hour > LOSS_PER_HOUR


def delta(before: int, after: int) -> int:
    """The difference of a counter that may have wrapped at 32 bits; 0 after a reset."""
    if after >= before:
        return after - before
    return after + WRAP - before if before < WRAP and before - after > WRAP // 2 else 0


def loss(counters: Mapping[str, int], uptime_s: Optional[float], ordered: bool) -> Rate:
    """All signs of loss together. `ordered` False: adaptive routing may reorder, so out_of_sequence is no sign of loss."""
    skipped = () if ordered else ("out_of_sequence",)
    events = sum(value for name, value in counters.items() if name in LOSS and name not in skipped)
    sent = next((counters[name] for name in PACKETS if counters.get(name)), None)
    hours = uptime_s / 3600 if uptime_s else None
    return Rate(events, events / sent if sent else None, events / hours if hours else None)


def signs(counters: Mapping[str, int], meanings: Mapping[str, str]) -> Dict[str, int]:
    """The counters of one kind that are not 0, the largest first."""
    found = {name: value for name, value in counters.items() if name in meanings and value > 0}
    return dict(sorted(found.items(), key=lambda item: -item[1]))
