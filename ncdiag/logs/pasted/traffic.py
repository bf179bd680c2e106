"""Two readings of RDMA counters beside those of an Ethernet interface: who carries what the job sends.

Sources: /sys/class/infiniband/*/ports/*/counters/port_{rcv,xmit}_data, in units of 4 bytes; /sys/class/net/*/statistics/{rx,tx}_bytes, which RoCE
does not count in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line
from ncdiag.logs.pasted.prompts import asked, fronted

_PATH = re.compile(
    r"/sys/class/(?:infiniband/(?P<device>[\w-]+)/ports/\d+/counters/port_(?P<data>rcv|xmit)_data|net/(?P<interface>[\w.-]+)/statistics/(?P<bytes>rx|tx)_bytes)[:=]\s*(?P<first>\d{1,20})(?: ?-> ?(?P<second>\d{1,20}))?"
)
_NAMED = re.compile(r"(?P<name>[a-z][\w.-]{1,30})[: ]\s*\S")
_VALUE = re.compile(
    r"\b(?:port_)?(?P<way>rcv|recv|rx|xmit|tx)(?:_data|_bytes)?[=:] ?(?P<first>\d{1,20})(?: ?-> ?(?P<second>\d{1,20}))?\b"
)
_RDMA = re.compile(r"(?:mlx[45]|bnxt_re|irdma|roce|ibp|hfi1|erdma|rdmap|qedr|hns|ionic)_?[\w-]*$")
_SLEEP = re.compile(r"\bsleep (\d{1,4})\b")
WORD = 4  # bytes counted as one by port_rcv_data and port_xmit_data
MUCH = 1 << 30  # bytes in one direction that a job moves and nothing beside it
SHARE = 0.01  # of them, below which RDMA stands still
LIMIT = 4096  # counters


@dataclass
class _Counter:
    first: int
    last: int
    at: Line
    again: Line | None = None
    """Where it was read a second time."""

    @property
    def moved(self) -> int:
        return self.last - self.first


class Traffic:
    """Counters by place, device and direction."""

    triggers = ("port_rcv_data", "port_xmit_data", "rx_bytes", "tx_bytes")

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str, str], _Counter] = {}
        self._at = ""
        self._sleep = ""

    def take(self, line: Line) -> bool:
        host, text = fronted(line)
        question = asked(line.text)
        if question is not None or line.text.startswith("$ "):
            self._at = question.host if question is not None else ""
            slept = _SLEEP.search(text)
            self._sleep = slept[1] if slept else self._sleep
            return any(word in text for word in self.triggers)
        place, taken = host or self._at or line.source, False
        for found in _PATH.finditer(text):
            self._read(place, found["device"] or found["interface"], found["data"] or found["bytes"], found, line)
            taken = True
        named = _NAMED.match(text) if not taken else None
        for found in _VALUE.finditer(text) if named else ():
            self._read(place, named["name"] if named else "", found["way"], found, line)
            taken = True
        return taken or re.fullmatch(r"[\d:. -]*|.*\d\d:\d\d:\d\d.*", text) is not None

    def _read(self, place: str, name: str, way: str, found: re.Match[str], line: Line) -> None:
        key = place, name, "in" if way in ("rcv", "recv", "rx") else "out"
        first, second = int(found["first"]), found["second"]
        counter = self._counters.get(key)
        if counter is not None:
            counter.last, counter.again = int(second or first), line
        elif len(self._counters) < LIMIT:
            self._counters[key] = _Counter(first, int(second or first), line, line if second else None)

    def end(self, source: str) -> None:
        self._at = ""

    def signals(self) -> Iterator[Signal]:
        moved = {key: counter for key, counter in self._counters.items() if counter.again and counter.moved >= 0}
        for (place, name, way), into in moved.items():
            out = moved.get((place, name, "out"))
            if way != "in" or _RDMA.match(name) or out is None:
                continue
            rdma = {key[1:]: one for key, one in moved.items() if key[0] == place and _RDMA.match(key[1])}
            still = sum(one.moved for one in rdma.values()) * WORD
            less, more = sorted((into.moved, out.moved))
            if not rdma or less < MUCH or more > 2 * less or still > SHARE * (less + more):
                continue  # who reads or writes files moves data one way
            devices = ", ".join(list(dict.fromkeys(device for device, _ in rdma))[:8])
            shown = list(dict.fromkeys(line for one in (into, *rdma.values()) for line in (one.at, one.again)))
            yield Signal(
                "net-fallback-slow",
                Says.STRONG,
                f"{name} carries {less / 1e9:.1f} GB each way{f' in {self._sleep} s' if self._sleep else ''} while {devices} "
                f"{'stand' if len(rdma) > 2 else 'stands'} still: what the nodes send each other goes over TCP sockets",
                [line.evidence() for line in shown if line is not None][:6],
                {"interface": name},
                condition=True,
                order=into.at.order,
                candidates=("rdma-unavailable",),
                remedy="find out why RDMA is not used: the NET/IB lines of NCCL_DEBUG=INFO, /dev/infiniband inside the container, NCCL_IB_DISABLE, NCCL_NET and NCCL_IB_HCA",
            )
            return
