"""Network interfaces: state, traffic, errors.

Source: /sys/class/net/<interface>/{operstate,speed,carrier_changes,statistics/*}; Documentation/ABI/testing/sysfs-class-net.
"""

from __future__ import annotations

from ncdiag.host import Host, HostError
from ncdiag.metrics.sheet import NotRead, Sheet
from ncdiag.nccl.sysfs import word

CLASS = "/sys/class/net"
LOOPBACK_FLAG = 0x8
ERRORS = (
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
    "rx_crc_errors",
    "rx_missed_errors",
    "tx_carrier_errors",
    "tx_aborted_errors",
)
"""rx_dropped also counts frames nobody listens for, so no alert rests on it."""
COUNTERS = {"ncdiag_nic_sent_bytes_total": "statistics/tx_bytes", "ncdiag_nic_received_bytes_total": "statistics/rx_bytes",
            "ncdiag_nic_carrier_changes_total": "carrier_changes"}  # fmt: skip


def read(host: Host, sheet: Sheet) -> None:
    """Raises NotRead where there is no interface to be seen."""
    try:
        present = host.list(CLASS)
    except HostError as error:
        raise NotRead(f"no network interface: {error}") from None
    chosen = interfaces(host, present)
    if not chosen:
        raise NotRead(f"no network interface but {', '.join(present) or 'none'} in {CLASS}")
    for name in chosen:
        _interface(host, sheet, name)


def interfaces(host: Host, present: list[str]) -> list[str]:
    """Those with hardware, and bonds and VLANs. Where none has hardware (a container), all but loopback and bridge ports."""
    real = [name for name in present if host.exists(f"{CLASS}/{name}/device")]
    if real:
        indices = {word(host, f"{CLASS}/{name}/ifindex") for name in real}
        bonds = [name for name in present if host.exists(f"{CLASS}/{name}/bonding")]
        indices |= {word(host, f"{CLASS}/{name}/ifindex") for name in bonds}
        above = [
            name for name in present if name not in real and word(host, f"{CLASS}/{name}/iflink") in indices - {None}
        ]
        return sorted({*real, *bonds, *above})
    return [name for name in present if not _loopback(host, name) and not host.exists(f"{CLASS}/{name}/brport")]


def _loopback(host: Host, name: str) -> bool:
    flags = host.number(f"{CLASS}/{name}/flags")
    return name == "lo" if flags is None else bool(flags & LOOPBACK_FLAG)


def _interface(host: Host, sheet: Sheet, name: str) -> None:
    base = f"{CLASS}/{name}"
    state = word(host, f"{base}/operstate")
    if state and state != "unknown":
        sheet.add("ncdiag_nic_up", state == "up", device=name)
    speed = host.number(f"{base}/speed")
    if speed is not None and 0 < speed < 1 << 31:
        sheet.add("ncdiag_nic_speed_bits_per_second", speed * 1e6, device=name)
    for series, file in COUNTERS.items():
        value = host.number(f"{base}/{file}")
        if value is not None:
            sheet.add(series, value, device=name)
    for counter in ERRORS:
        value = host.number(f"{base}/statistics/{counter}")
        if value is not None:
            sheet.add("ncdiag_nic_errors_total", value, device=name, counter=counter)
