"""RDMA devices that one place has and another one, or the kernel, has not: `<net>` elements of NCCL's topology, `ls /dev/infiniband` and `ibv_devices` of several
nodes or pods.

Sources: NCCL's topology dumps (NCCL_TOPO_DUMP_FILE); /dev/infiniband/uverbsN is what libibverbs opens, /sys/class/infiniband_verbs/uverbsN/ibdev its device:
libibverbs leaves out a device without its node and says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line
from ncdiag.logs.pasted.prompts import asked, fronted

_NET = re.compile(r"<net\b[^>]*?\bname=\"(?P<name>[\w.:+-]{1,80})\"")
_LIST = re.compile(r"\bls(?: -\w+)* (?:\S+ )*?/dev/infiniband\b")
_NODE = re.compile(r"(?<![\w-])uverbs(\d{1,4})(?![\w/])")
_NAMES = re.compile(r"\b(?:ibv_devices|ibv_devinfo -l|ls(?: -\w+)* /sys/class/infiniband/?)(?: 2>\S+)?['\"]?\s*$")
_DEVICE = re.compile(r"\b(?:mlx[45]_\w+|(?:bnxt_re|irdma|hns_|erdma_|qedr)\d+|(?:roce|ibp|rdmap)\w+)\b")
_OTHER = re.compile(r"(?:[\w./-]*(?:rdma_cm|umad|issm|ucm|by-\w+|\.\.?/?)\d*|total \d+|[bcdl-][rwxst-]{9}.*|\s)+$")
"""What else stands in such a list."""
_KNOWN = re.compile(r"/sys/class/infiniband_verbs/uverbs(?P<number>\d{1,4})/ibdev(?::|: | )(?P<device>[A-Za-z][\w-]*)")
_HEADING = re.compile(r"\s*(?:device\s+node GUID|-+\s+-+|\d+ HCAs? found:)?\s*$")
"""Of ibv_devices and ibv_devinfo."""
PLACES_LIMIT = 1000


@dataclass
class _Place:
    named: bool
    nets: dict[str, Line] = field(default_factory=dict)
    """Names of `<net>` elements."""
    nodes: dict[str, Line] = field(default_factory=dict)
    """Numbers of device nodes."""
    devices: dict[str, Line] = field(default_factory=dict)
    """Names that the verbs tools or sysfs list."""
    known: dict[str, tuple[str, Line]] = field(default_factory=dict)
    """Numbers that the kernel has -> device."""


class DeviceNodes:
    """Such lists by place."""

    triggers = ("<net ", "/dev/infiniband", "/ibdev", "ibv_dev", "/sys/class/infiniband")

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._at = ""
        self._lists = self._names = False
        """Whether device nodes are listed, or names of devices."""
        self._unnamed = 0

    def take(self, line: Line) -> bool:
        host, text = fronted(line)
        question = asked(line.text)
        if question is not None or line.text.startswith(("$ ", "# ")):
            self._at = question.host if question is not None else self._at  # a heading's
            self._lists, self._names = _LIST.search(text) is not None, _NAMES.search(text) is not None
            if self._lists and not self._at:  # another list, of whom is not said
                self._unnamed += 1
            return True
        place = self._place(host or self._at, line)
        net, known = _NET.search(text), _KNOWN.search(text)
        if known:
            place.known[known["number"]] = known["device"], line
        elif net:
            if net["name"] in place.nets:  # the next one's list, whose heading was not kept
                self._at, self._unnamed = "", self._unnamed + 1
                place = self._place("", line)
            place.nets[net["name"]] = line
        elif self._lists and (numbers := _NODE.findall(text)):
            place.nodes.update(dict.fromkeys(numbers, line))
        elif self._names and (names := _DEVICE.findall(text)):
            place.devices.update(dict.fromkeys(names, line))
        elif not (self._lists and _OTHER.match(text)) and not (self._names and _HEADING.match(text)):
            self._at, self._lists, self._names = "", False, False
            return False
        return True

    def _place(self, name: str, line: Line) -> _Place:
        key = name or f"{line.source} {self._unnamed}"
        if key not in self._places and len(self._places) >= PLACES_LIMIT:
            return _Place(False)
        return self._places.setdefault(key, _Place(bool(name)))

    def end(self, source: str) -> None:
        self._at, self._unnamed = "", self._unnamed + 1
        self._lists = self._names = False

    def signals(self) -> Iterator[Signal]:
        found = [*self._without_node(), *self._fewer()]
        for signal in found[:1]:
            signal.evidence.extend(item for other in found[1:] for item in other.evidence[:2])
            yield signal

    def _fewer(self) -> Iterator[Signal]:
        """Two places of which one has a part of the other's. A machine that has few of them may be of another kind, as a head node is."""
        for kind, of in (
            ("device nodes", "nodes"),
            ("devices", "devices"),
            ("devices in NCCL's topology", "nets"),
        ):
            lists = [(name, place.named, getattr(place, of)) for name, place in self._places.items()]
            lists = sorted((one for one in lists if one[2]), key=lambda one: -len(one[2]))
            if not lists:
                continue
            (most, sure, full), (few, also_sure, some) = lists[0], lists[-1]
            if not some.keys() < full.keys():
                continue
            absent = sorted(full.keys() - some.keys())
            names = ", ".join(f"/dev/infiniband/uverbs{one}" if of == "nodes" else one for one in absent[:6])
            yield Signal(
                "hca-mismatch-between-nodes",
                Says.STRONG if sure and also_sure and 2 * len(some) >= len(full) else Says.HINT,
                f"{few if also_sure else 'one place'} has {len(some)} RDMA {kind}, {most if sure else 'another one'} {len(full)}: it lacks {names}",
                [line.evidence() for line in dict.fromkeys([next(iter(some.values())), full[absent[0]]])],
                {"node": few} if also_sure else {},
                condition=True,
                order=next(iter(some.values())).order,
            )

    def _without_node(self) -> Iterator[Signal]:
        """A place that opens some devices, or none, of those that its kernel has. A pod may have been given one of several on purpose, and then so has its neighbour."""
        counts = {len(place.nodes) for place in self._places.values() if place.nodes}
        for name, place in self._places.items():
            absent = {number: place.known[number] for number in place.known.keys() - place.nodes.keys()}
            if not absent or not place.nodes or len(absent) >= len(place.nodes):
                continue
            nodes = ", ".join(f"/dev/infiniband/uverbs{number} ({absent[number][0]})" for number in sorted(absent)[:6])
            yield Signal(
                "hca-mismatch-between-nodes",
                Says.STRONG if len(counts) > 1 else Says.HINT,
                f"{name if place.named else 'one place'} has no {nodes}, which its kernel knows: libibverbs leaves such a device out and says nothing",
                [*(line.evidence() for _, line in absent.values()), next(iter(place.nodes.values())).evidence()][:6],
                {"node": name} if place.named else {},
                condition=True,
                order=next(iter(place.nodes.values())).order,
                remedy="give the container the device nodes of all HCAs (the device plugin's resource, --device=/dev/infiniband), or name the common devices with NCCL_IB_HCA",
            )
            return
