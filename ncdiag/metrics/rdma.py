"""RDMA ports: state, traffic and error counters.

Source: /sys/class/infiniband/<device>/ports/<n>/{state,rate,counters,hw_counters}; port_xmit_data and port_rcv_data count words of 4
bytes (InfiniBand PortCounters). Names of EFA, bnxt_re and rxe: drivers/infiniband/hw/efa/efa_verbs.c, bnxt_re/hw_counters.c, sw/rxe.
"""

from __future__ import annotations

import re

from ncdiag.host import Host, HostError
from ncdiag.metrics.sheet import NotRead, Sheet
from ncdiag.nccl import counters as meaning
from ncdiag.nccl.sysfs import names, numbered, word

CLASS = "/sys/class/infiniband"

BYTES = {
    "ncdiag_rdma_sent_bytes_total": (("port_xmit_data", 4), ("tx_bytes", 1)),
    "ncdiag_rdma_received_bytes_total": (("port_rcv_data", 4), ("rx_bytes", 1)),
    "ncdiag_rdma_sent_packets_total": tuple((name, 1) for name in meaning.PACKETS),
    "ncdiag_rdma_received_packets_total": (("port_rcv_packets", 1), ("rx_pkts", 1), ("rcvd_pkts", 1)),
}
"""Series -> (file, bytes that one unit is), of which the first that is there counts."""


class Running:
    """Turns counters that wrap at 32 bits or are reset into ones that only grow. One for the life of the exporter."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], int] = {}
        self._total: dict[tuple[str, ...], int] = {}

    def total(self, key: tuple[str, ...], value: int) -> int:
        """The first value, and whatever was added since."""
        grown = meaning.delta(self._last[key], value) if key in self._last else value
        self._last[key] = value
        self._total[key] = self._total.get(key, 0) + grown
        return self._total[key]


def read(host: Host, running: Running, sheet: Sheet) -> None:
    """Raises NotRead where the node has no RDMA device, or none that can be read."""
    try:
        devices = host.list(CLASS)
    except HostError as error:
        raise NotRead(f"no RDMA device: {error}") from None
    if not devices:
        raise NotRead(f"no RDMA device: {CLASS} is empty")
    ports = [(device, port) for device in devices for port in numbered(host, f"{CLASS}/{device}/ports")]
    if not ports:
        raise NotRead(f"no port of {', '.join(devices)} can be read")
    for device, port in ports:
        _port(host, running, sheet, device, port)


def _port(host: Host, running: Running, sheet: Sheet, device: str, port: int) -> None:
    base = f"{CLASS}/{device}/ports/{port}"
    state, rate = word(host, f"{base}/state"), re.match(r"\d+(?:\.\d+)?", word(host, f"{base}/rate") or "")
    if state:
        sheet.add("ncdiag_rdma_port_active", "ACTIVE" in state, device=device, port=port)
    if rate:
        sheet.add("ncdiag_rdma_port_rate_bits_per_second", float(rate.group()) * 1e9, device=device, port=port)
    values, unread = _values(host, device, base)
    if unread:
        sheet.add("ncdiag_rdma_counter_unread", unread, device=device, port=port)
    for series, files in BYTES.items():
        found = next(((name, unit) for name, unit in files if name in values), None)
        if found:
            total = running.total((device, str(port), found[0]), values[found[0]])
            sheet.add(series, total * found[1], device=device, port=port)
    layer = word(host, f"{base}/link_layer") or ""
    for name, value in values.items():
        kind = _kind(name, ordered=layer == "Ethernet")
        if not kind:
            continue
        total = running.total((device, str(port), name), value)
        sheet.add("ncdiag_rdma_errors_total", total, device=device, port=port, counter=name, kind=kind, layer=layer)
        if name == "link_downed":
            sheet.add("ncdiag_rdma_link_downed_total", total, device=device, port=port)
        if name in meaning.MAXIMA:
            sheet.add(
                "ncdiag_rdma_counter_stuck", value == meaning.MAXIMA[name], device=device, port=port, counter=name
            )


def _values(host: Host, device: str, base: str) -> tuple[dict[str, int], int]:
    """Counter -> value, and how many could not be read. The port's own go before those of its device."""
    values: dict[str, int] = {}
    unread = 0
    for folder in (f"{CLASS}/{device}/hw_counters", f"{base}/counters", f"{base}/hw_counters"):
        for name in names(host, folder):
            try:
                values[name] = int(host.value(f"{folder}/{name}") or "")
            except (HostError, ValueError):
                unread += 1
    return values, unread


def _kind(name: str, ordered: bool) -> str:
    if name == "out_of_sequence" and not ordered:
        return "order"
    for kind, table in (("link", meaning.LINK), ("loss", meaning.LOSS), ("late", meaning.LATE)):
        if name in table:
            return kind
    return ""
