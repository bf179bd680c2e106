"""`show_gids` and loops over /sys/class/infiniband/*/ports/*/gids: devices without a routable RoCE v2 GID, or with it at different indexes."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line

_ROW = re.compile(
    r"^(?P<device>[A-Za-z]\w+)\s+(?P<port>\d+)\s+(?P<index>\d+)\s+(?P<gid>[0-9a-f]{4}(?::[0-9a-f]{4}){7})\s+(?:(?P<ip>\d+\.\d+\.\d+\.\d+)\s+)?(?P<version>v1|v2|IB/RoCE v1|RoCE v2)\b\s*(?P<netdev>\S+)?"
)
_HEADING = re.compile(r"^-*\s*(?P<device>(?:mlx|rocep|bnxt|irdma|hrn|erdma|rdma|rxe|ibp)[\w.]*)\s*-*$")
_ENTRY = re.compile(
    r"^\s*GID\[\s*(?P<index>\d+)\]:?\s+(?P<gid>[0-9a-f:.]+)(?:\s*,?\s*\(?(?P<version>IB/RoCE v1|RoCE v1|RoCE v2|v1|v2)\)?)?"
)
_INDEX = re.compile(r"NCCL_IB_GID_INDEX\D{1,25}?(?P<index>\d+)")


@dataclass(frozen=True)
class Gid:
    device: str
    index: int
    gid: str
    version: str
    line: Line
    table: int = 0
    """Which of several tables, one a node."""
    address: str = ""
    """IPv4, "" for another one."""
    interface: str = ""

    @property
    def routable(self) -> bool:
        return self.version.endswith("v2") and not self.gid.startswith(
            ("fe80", "0000:0000:0000:0000:0000:0000:0000:0000")
        )


class Gids:
    """GID tables of RoCE devices."""

    triggers = (
        "DEV\tPORT\tINDEX",
        "PORT  INDEX",
        "n_gids_found",
        "GID[",
        "RoCE v2",
        "\tv2\t",
        " v2 ",
        "NCCL_IB_GID_INDEX",
    )

    def __init__(self) -> None:
        self.found: list[Gid] = []
        self.wanted: tuple[int, Line] | None = None
        self._device = ""
        self._complete = False
        self._sources: set[str] = set()
        self._places: set[tuple[str, str, str, str]] = set()
        """Rows of the present table."""
        self._table = 0
        self._tables: dict[str, dict[int, set[int]]] = {}
        """Device -> table (one a node) -> indexes of routable GIDs."""

    def take(self, line: Line) -> bool:
        wanted = _INDEX.search(line.text)
        if wanted and self.wanted is None:
            self.wanted = (int(wanted["index"]), line)
        heading = _HEADING.match(line.text.strip())
        row, entry = _ROW.match(line.text), _ENTRY.match(line.text)
        if row:
            place = row["device"], row["port"], row["index"], line.source
            if place in self._places:  # the same port again: the next node's table, whose heading was not kept
                self._table += 1
                self._places.clear()
            self._places.add(place)
            cells = row["device"], int(row["index"]), row["gid"], row["version"], line
            self._add(Gid(*cells, self._table, row["ip"] or "", row["netdev"] or ""))
        elif entry and entry["version"]:
            self._add(Gid(self._device or "a device", int(entry["index"]), entry["gid"], entry["version"], line))
        elif heading:
            self._device = heading["device"]
        if "INDEX" in line.text and "GID" in line.text:
            self._table += 1
            self._places.clear()
        self._complete = self._complete or "n_gids_found" in line.text
        return "INDEX" in line.text or bool(row or entry or heading) or line.text.startswith("---")

    def _add(self, gid: Gid) -> None:
        if len(self.found) < 20_000:
            self.found.append(gid)
            self._sources.add(gid.line.source)
            if gid.routable:
                self._tables.setdefault(gid.device, {}).setdefault(self._table, set()).add(gid.index)

    def end(self, source: str) -> None:
        self._device = ""

    def signals(self) -> Iterator[Signal]:
        devices: dict[str, list[Gid]] = {}
        for gid in self.found:
            devices.setdefault(gid.device, []).append(gid)
        good = {name: sorted(gid.index for gid in gids if gid.routable) for name, gids in devices.items()}
        without = [name for name, indexes in good.items() if not indexes]
        if (
            without
            and (self._complete or len(devices) > 1)
            and any(gid.version.endswith("v2") or gid.version.endswith("v1") for gid in self.found)
        ):
            gids = devices[without[0]]
            says = Says.STRONG if len(without) < len(devices) or self.wanted else Says.HINT
            yield Signal(
                "roce-gid-wrong",
                says,
                f"{', '.join(without[:6])} has no routable RoCE v2 GID (link-local or v1 only)",
                [gid.line.evidence() for gid in gids[:4]],
                {"device": without[0]},
                order=gids[0].line.order,
                remedy="give its interface an IPv4 address, or leave the device out with NCCL_IB_HCA; unset NCCL_IB_GID_INDEX",
            )
        for name, tables in self._tables.items():
            if len(tables) > 1 and not set.intersection(*tables.values()):
                lines = [gid.line.evidence() for gid in devices[name] if gid.routable][:6]
                yield Signal(
                    "roce-gid-wrong",
                    Says.STRONG,
                    f"the routable RoCE v2 GID of {name} is at different indexes on the nodes: "
                    + " and ".join(str(min(found)) for found in tables.values()),
                    lines,
                    {"device": name},
                    order=devices[name][0].line.order,
                    remedy="do not set one NCCL_IB_GID_INDEX for all (unset it with NCCL 2.21 and later), or set it per node in /etc/nccl.conf",
                )
        with_one = {name: indexes for name, indexes in good.items() if indexes}
        common = set.intersection(*(set(indexes) for indexes in with_one.values())) if with_one else set()
        if len(with_one) > 1 and not common:
            lines = [gid.line.evidence() for gids in devices.values() for gid in gids if gid.routable][:6]
            yield Signal(
                "roce-gid-wrong",
                Says.STRONG,
                "the routable RoCE v2 GID is at different indexes: "
                + ", ".join(f"{name} {indexes[0]}" for name, indexes in sorted(with_one.items())[:8]),
                lines,
                condition=True,
                order=self.found[0].line.order,
            )
        if self.wanted and self.found:
            index, line = self.wanted
            yield from self._elsewhere(index, line)
            bad = [name for name, indexes in good.items() if index not in indexes]
            if bad:
                yield Signal(
                    "roce-gid-wrong",
                    Says.STRONG,
                    f"NCCL_IB_GID_INDEX={index}, but {', '.join(sorted(bad)[:6])} has no routable RoCE v2 GID there",
                    [line.evidence(), *(gid.line.evidence() for gid in devices[bad[0]][:3])],
                    {"device": bad[0]},
                    order=line.order,
                )

    def _elsewhere(self, index: int, line: Line) -> Iterator[Signal]:
        """Nodes on which the index that is set for all leads into different networks, while another index of one leads into the other's."""
        ports: dict[tuple[str, int], list[Gid]] = {}
        for gid in self.found:
            if gid.routable and gid.address:
                ports.setdefault((gid.device, gid.table), []).append(gid)
        at = [gid for gids in ports.values() for gid in gids if gid.index == index][:PAIRS_LIMIT]
        for one in at:
            for other in at:
                if (
                    one.device != other.device
                    or one.table == other.table
                    or _common(one.address, other.address) >= NEAR
                ):
                    continue
                there = ports[other.device, other.table]
                better = next((gid for gid in there if _common(gid.address, one.address) >= NEAR), None)
                if better is None:
                    continue
                yield Signal(
                    "roce-gid-wrong",
                    Says.STRONG,
                    f"NCCL_IB_GID_INDEX={index} of {one.device} is {one.address} ({one.interface}) on one node and {other.address} ({other.interface}), "
                    f"another network, on another one, where {better.address} is at index {better.index}",
                    [line.evidence(), other.line.evidence(), better.line.evidence(), one.line.evidence()],
                    {"device": other.device},
                    order=line.order,
                    remedy="do not set one NCCL_IB_GID_INDEX for all (unset it with NCCL 2.21 and later), or set it per node in /etc/nccl.conf",
                )
                return


PAIRS_LIMIT = 128  # ports compared with each other
NEAR = 20  # leading bits that addresses of one network have in common


def _common(one: str, other: str) -> int:
    """How many leading bits two IPv4 addresses have in common; 0 where one is none."""
    try:
        return 32 - (int(ipaddress.IPv4Address(one)) ^ int(ipaddress.IPv4Address(other))).bit_length()
    except ValueError:
        return 0
