"""`df`, `ip addr`, `ps`: full file systems, interfaces that are down or of another MTU, stopped processes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.kinds import NO_INODES
from ncdiag.logs.model import Line

_DF = re.compile(
    r"^\S+\s+(?P<size>\d+(?:\.\d+)?[KMGTP]?i?)\s+(?P<used>\d+(?:\.\d+)?[KMGTP]?i?)\s+(?P<free>\d+(?:\.\d+)?[KMGTP]?i?)\s+(?P<percent>\d+)%\s+(?P<mount>/\S*)\s*$"
)
_SYSTEM = re.compile(r"/(?:snap|proc|sys|run/|boot|mnt/cdrom)")
_LINK = re.compile(
    r"^\d+: (?P<name>[\w.@-]+?)(?:@\S+)?: <(?P<flags>[A-Z_,-]+)> mtu (?P<mtu>\d+).*?(?:state (?P<state>\w+))?"
)
_UNITS = {"K": 1, "M": 1 << 10, "G": 1 << 20, "T": 1 << 30, "P": 1 << 40}
_VIRTUAL = re.compile(
    r"^(?:lo|docker|br-|veth|virbr|cni|flannel|cali|kube|dummy|tunl|sit|ip6tnl|bonding_masters|tailscale|wg)"
)

_TUNNEL = re.compile(
    r"^(?:vxlan|flannel|cilium_vxlan|cilium_geneve|geneve?|genev_sys|tunl\d|ipip|gre|weave|wg|wireguard|ovn-k8s|vxlan_sys)"
)
_INSIDE = re.compile(r"^\d+: (?:eth|net)\d+@if\d+: ")

_MTU_FILE = re.compile(r"cat /sys/class/net/(?P<name>[\w.-]+)/mtu\s*$")


def _kib(text: str) -> float:
    text = text.rstrip("i")
    return float(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else float(text)


class FileSystems:
    """`df`, with and without -h."""

    triggers = ("Filesystem", "/dev/shm", "% /")

    def __init__(self) -> None:
        self._full: list[tuple[str, str, Line]] = []
        self._inodes = False
        self._without: list[tuple[str, Line]] = []
        """File systems without free inodes."""
        self._small: list[tuple[str, Line]] = []

    def take(self, line: Line) -> bool:
        match = _DF.match(line.text.strip())
        if line.text.startswith("Filesystem"):
            self._inodes = "Inodes" in line.text
        if match and self._inodes:
            if int(match["percent"]) >= 99 and not _SYSTEM.match(match["mount"]) and len(self._without) < 50:
                self._without.append((match["mount"], line))
        elif match and match["mount"].rstrip("/") == "/dev/shm":
            if int(match["percent"]) >= 95 or _kib(match["size"]) <= 64 * 1024:
                self._small.append((match["size"], line))
        elif match and int(match["percent"]) >= 99 and not _SYSTEM.match(match["mount"]) and len(self._full) < 50:
            self._full.append((match["mount"], match["percent"], line))
        return bool(match) or line.text.startswith("Filesystem")

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        if self._small:
            size, line = self._small[0]
            yield Signal(
                "shm-too-small",
                Says.STRONG,
                f"/dev/shm is small or full (size {size})",
                [line.evidence()],
                condition=True,
                order=line.order,
            )
        if self._without:
            mount, line = self._without[0]
            yield Signal(
                "disk-full",
                Says.STRONG,
                f"no inodes are left on {mount}, whatever space is free",
                [item[1].evidence() for item in self._without[:3]],
                {"path": mount},
                condition=True,
                order=line.order,
                remedy="remove or pack many small files (caches, temp, samples of data sets; `du --inodes -d2`), put caches elsewhere, or a file system with more inodes; `df -h` does not show it, `df -i` does",
                kind=NO_INODES,
            )
        if self._full:
            mount, percent, line = self._full[0]
            yield Signal(
                "disk-full",
                Says.STRONG,
                f"{mount} is {percent}% full",
                [item[2].evidence() for item in self._full[:3]],
                {"path": mount},
                condition=True,
                order=line.order,
            )


class Links:
    """`ip addr`, `ip link` and /sys/class/net/*/mtu."""

    triggers = ("BROADCAST,", "> mtu ", "/mtu")

    def __init__(self) -> None:
        self._mtus: dict[str, dict[int, Line]] = {}
        self._tunnel: tuple[str, int, Line] | None = None
        self._inside: tuple[int, Line] | None = None
        self._down: list[tuple[str, Line]] = []
        self._asked = ""

    def take(self, line: Line) -> bool:
        if self._asked and line.text.strip().isdecimal():
            self._mtus.setdefault(self._asked, {}).setdefault(int(line.text), line)
        file = _MTU_FILE.search(line.text)
        self._asked = file["name"] if file else ""
        if file:
            return True
        match = _LINK.match(line.text)
        if match and _TUNNEL.match(match["name"]) and (self._tunnel is None or int(match["mtu"]) < self._tunnel[1]):
            self._tunnel = match["name"], int(match["mtu"]), line
        if match and _INSIDE.match(line.text) and (self._inside is None or int(match["mtu"]) > self._inside[0]):
            self._inside = int(match["mtu"]), line
        if match and not _VIRTUAL.match(match["name"]):
            self._mtus.setdefault(match["name"], {}).setdefault(int(match["mtu"]), line)
            if "NO-CARRIER" in match["flags"] and len(self._down) < 100:
                self._down.append((match["name"], line))
        return bool(match) or line.text.startswith("    ")

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        for name, mtus in self._mtus.items():
            if len(mtus) > 1:
                yield Signal(
                    "mtu-mismatch",
                    Says.STRONG,
                    f"{name} has different MTUs: " + ", ".join(str(mtu) for mtu in sorted(mtus)),
                    [line.evidence() for line in mtus.values()],
                    {"interface": name},
                    condition=True,
                    order=min(line.order for line in mtus.values()),
                )
        if self._tunnel is not None and self._inside is not None and self._inside[0] > self._tunnel[1]:
            name, mtu, line = self._tunnel
            yield Signal(
                "mtu-mismatch",
                Says.STRONG,
                f"the containers' interface has MTU {self._inside[0]}, the tunnel {name} below it carries {mtu}",
                [self._inside[1].evidence(), line.evidence()],
                {"interface": name},
                condition=True,
                order=min(line.order, self._inside[1].order),
                remedy="set the network plug-in's MTU to the tunnel's (the hosts' MTU less 50 for VXLAN), then start the pods again",
            )
        if self._down:
            name, line = self._down[0]
            yield Signal(
                "ib-link-or-hca-fault",
                Says.HINT,
                f"interface {name} has no carrier",
                [line.evidence()],
                {"interface": name},
                condition=True,
                order=line.order,
            )


_ENGINE = re.compile(r"\S*python\S*|VLLM\S*|ray::\S*|\S*vllm\S*|pt_main\S*|sglang\S*|\S*trtllm\S*")
_STAT = re.compile(
    r"^\s*(?:(?P<user>[A-Za-z_][\w.+-]*)\s+)?(?P<pid>\d+)\s+(?:.*?\s)?(?P<state>[TtD][lsN+<]*)\s+.*?(?P<command>(?:"
    + _ENGINE.pattern
    + r").*)$"
)
_FILES = re.compile(
    r"\b(?:rpc_wait_bit\w*|nfs\d?_\w+|fuse_\w+|request_wait_answer|ceph_\w+|ldlm_\w+|ptlrpc_\w+|cl_sync_io\w*)\b"
)
"""Wait channels of processes that wait for a file system of the network or of a program."""
_PARENT = re.compile(
    r"^\s*(?:[a-z_][\w.+-]{0,31}\s+)?(?P<pid>\d+)\s+1\s+(?:.*?\s)?(?P<command>VLLM::(?:Worker|EngineCor)\S*|sglang::\S*|pt_main_thread\S*|ray::\S*|.*multiprocessing\.(?:spawn|forkserver)\b).*$"
)
_RANK = re.compile(
    r"^\s*(?:[a-z_][\w.+-]{0,31}\s+)?(?P<pid>\d{1,9})\s+1\s+(?:.*?\s)?(?P<command>(?:\S*/)?(?:python[\d.]*|torchrun|accelerate|deepspeed)\s+\S.*?)\s*$"
)
"""A program that may be one rank of several, whose parent is process 1: alone it may be a service."""
_TABLE = re.compile(r"^\s*(?:\S+\s+)?PID\s+PPID\b|\bps\s+(?:-\S+\s+)*(?:-\w*f\b|-?\w*o\s*(?:user,|uid,)?pid,ppid\b)")
"""A table with the parents' column: its heading, or the command before one whose heading a filter took away."""
_NUMBERED = re.compile(r"--(?:local|node|global|machine)?[_-]?rank[= ]\d+ ?")
_STOP = (
    "do_signal_stop",
    "ptrace_stop",
    "do_freezer_trap",
    "__refrigerator",
)  # wait channels of stopped and frozen processes


class Processes:
    """`ps` with and without its heading: processes of the engine that are stopped or wait for files, and workers that lost their parent."""

    triggers = (
        *("%CPU %MEM", "  PID ", " PID TTY", "STAT", "PPID", "ps -", "Tl ", "Tsl ", "Tl+ ", "T+ ", *_STOP),
        *("rpc_wait_bit", "nfs_", "nfs4_", "fuse_", "request_wait_answer", "ceph_", "ldlm_", "ptlrpc_", "cl_sync_io"),
    )

    def __init__(self) -> None:
        self._stopped: list[tuple[str, Line]] = []
        self._reading: list[tuple[str, str, Line]] = []
        self.orphans: dict[int, Line] = {}
        """Workers of an engine whose parent is process 1: their own engine is gone."""
        self._adopted: dict[tuple[str, str], dict[int, Line]] = {}
        """Source and command line -> processes of it whose parent is process 1."""
        self._parents = False

    def take(self, line: Line) -> bool:
        text = line.text
        if "PID" in text or "ps -" in text:
            self._parents = _TABLE.search(text) is not None
            return True
        match = _STAT.match(text)
        if match and match["state"][0] in "Tt" and len(self._stopped) < 100:
            self._stopped.append((match["pid"], line))
        if match and match["state"][0] == "D" and (place := _FILES.search(text)) and len(self._reading) < 100:
            self._reading.append((match["pid"], place[0], line))
        orphan = _PARENT.match(text) if self._parents else None
        if orphan and len(self.orphans) < 100:
            self.orphans[int(orphan["pid"])] = line
        elif self._parents and (rank := _RANK.match(text)) and len(self._adopted) < 1000:
            alike = self._adopted.setdefault((line.source, _NUMBERED.sub("", rank["command"])), {})
            alike.setdefault(int(rank["pid"]), line)
        return bool(text.strip()) and (
            self._parents or match is not None or re.match(r"^\s*(?:\S+\s+)?\d+\s", text) is not None
        )

    def end(self, source: str) -> None:
        self._parents = False

    def ranks_left(self, pid: int) -> dict[int, Line]:
        """A process and the others of its command line, all of them without their launcher; {} for one that is alone, as services are."""
        alike = next((found for found in self._adopted.values() if pid in found), {})
        return alike if len(alike) > 1 else {}

    def signals(self) -> Iterator[Signal]:
        if self._stopped:
            pid, line = self._stopped[0]
            yield Signal(
                "rank-stopped",
                Says.STRONG,
                f"process {pid} is stopped (state T)",
                [item.evidence() for _, item in self._stopped[:4]],
                {"pid": int(pid)},
                order=line.order,
            )
        if self._reading:
            pid, place, line = self._reading[0]
            yield Signal(
                "rank-stuck-outside-collective",
                Says.STRONG,
                f"process {pid} sleeps in the kernel and waits for a file system ({place})",
                [item.evidence() for _, _, item in self._reading[:4]],
                {"pid": int(pid)},
                condition=True,
                candidates=("storage-slow",),
                order=line.order,
                remedy="see whether the file system that this process reads answers (its server, the mount); the other ranks only wait",
            )
