"""There are enough ephemeral ports, and the ports that the engine wants are free and will stay so.

NCCL, gloo and Ray listen and connect on ports that the kernel picks from ip_local_port_range. A fixed port (MASTER_PORT, Ray's,
the API's) inside that range can be taken by any outgoing connection before the engine binds it.

Source: /proc/sys/net/ipv4/ip_local_port_range, ip_local_reserved_ports; /proc/net/tcp, tcp6 (state 0A); /proc/PID/fd.
"""

from __future__ import annotations

import re
import time
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, unknown, warn

RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
RESERVED = "/proc/sys/net/ipv4/ip_local_reserved_ports"
FEW_PORTS = 10000
"""The kernel's own range has 28232. A judgement: a rank of a large job holds hundreds of connections, and closed ones block a port for 60 s."""
OWNER_LIMIT_S = 0.1
"""Processor time that the search for the owners of listening sockets may take; on a node with thousands of processes some stay unknown."""
DEFAULT_PORTS = {
    29500: "torch's store",
    29501: "vLLM's --master-port",
    29550: "vLLM's data-parallel handshake",
    6379: "Ray's head",
    8000: "vLLM's API",
    10001: "Ray's client server",
    8265: "Ray's dashboard",
    28028: "NCCL RAS",
}
"""Ports that the owners are looked for first; what each is by default."""


class Listener(TypedDict):
    """One listening TCP socket."""

    address: str
    """As in /proc/net/tcp: hexadecimal; all zeros is every address."""
    port: int
    uid: int
    inode: int
    pid: Optional[int]
    """None: not found, for lack of permission or time."""
    command: Optional[str]


class Facts(TypedDict):
    low: Optional[int]
    high: Optional[int]
    reserved: Optional[str]
    """Ports and ranges as the kernel writes them: `29500,30000-30010`; None where it cannot be read."""
    listeners: Optional[List[Listener]]
    """None where /proc/net/tcp cannot be read."""
    environ_ports: Dict[str, int]
    """MASTER_PORT and the like, where they are set."""


def collect(host: Host) -> Facts:
    span = re.findall(r"\d+", _value(host, RANGE) or "")
    low, high = (int(span[0]), int(span[1])) if len(span) == 2 else (None, None)
    listeners = _listeners(host)
    if listeners and not host.recorded:
        _find_owners(host, listeners)
    return {
        "low": low,
        "high": high,
        "reserved": _value(host, RESERVED),
        "listeners": listeners,
        "environ_ports": _environ_ports(host),
    }


def _value(host: Host, path: str) -> Optional[str]:
    try:
        return host.value(path)
    except HostError:
        return None


def _environ_ports(host: Host) -> Dict[str, int]:
    """None of a running engine: it holds its ports itself."""
    if host.pid is not None:
        return {}
    try:
        environ = host.environ()
    except HostError:
        return {}
    return {
        name: int(environ[name])
        for name in ("MASTER_PORT", "VLLM_PORT", "VLLM_DP_MASTER_PORT")
        if environ.get(name, "").isdecimal()
    }


def _listeners(host: Host) -> Optional[List[Listener]]:
    root = "/proc/%d" % host.pid if host.pid is not None and not host.recorded else "/proc"
    found: Dict[int, Listener] = {}
    read = False
    for file in ("tcp", "tcp6"):
        try:
            text = host.read("%s/net/%s" % (root, file), 16 << 20)
        except HostError:
            continue
        read = True
        for line in text.splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == "0A":
                address, _, port = fields[1].partition(":")
                found[int(fields[9])] = {
                    "address": address,
                    "port": int(port, 16),
                    "uid": int(fields[7]),
                    "inode": int(fields[9]),
                    "pid": None,
                    "command": None,
                }
    return sorted(found.values(), key=lambda listener: (listener["port"], listener["address"])) if read else None


def _find_owners(host: Host, listeners: List[Listener]) -> None:
    """Fills in pid and command, newest processes first, until all are found or the time is used up."""
    wanted = {"socket:[%d]" % listener["inode"]: listener for listener in listeners}
    end = time.thread_time() + OWNER_LIMIT_S
    for pid in sorted((int(name) for name in host.names("/proc") if name.isdecimal()), reverse=True):
        if not wanted or time.thread_time() > end:
            return
        try:
            descriptors = host.list("/proc/%d/fd" % pid)
        except HostError:
            continue
        for descriptor in descriptors:
            try:
                listener = wanted.pop(host.link("/proc/%d/fd/%s" % (pid, descriptor)), None)
            except HostError:
                continue
            if listener is not None:
                listener["pid"], listener["command"] = pid, (_value(host, "/proc/%d/comm" % pid) or None)


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        wanted = {port: "the plan" for port in snapshot.plan.ports}
        wanted.update((port, name) for name, port in facts["environ_ports"].items())
        found = [*_range(node, facts), *_inside(node, facts, wanted), *_in_use(node, facts, wanted)]
        yield from found
        low, high = facts["low"], facts["high"]
        if facts["listeners"] is None:
            yield unknown(
                "which ports are in use could not be read",
                node,
                source="/proc/net/tcp",
                remedy="run ncdiag on the node itself",
            )
        if low is None or high is None:
            yield unknown("the range of ephemeral ports could not be read", node, source=RANGE, remedy="cat %s" % RANGE)
        elif not found and facts["listeners"] is not None:
            busy = {listener["port"] for listener in facts["listeners"]}
            yield ok(
                "%d ephemeral ports (%d to %d); %s"
                % (
                    high - low + 1,
                    low,
                    high,
                    "the wanted ports are free: %s" % ", ".join(map(str, sorted(wanted)))
                    if wanted
                    else "no fixed ports are planned",
                ),
                node,
                source=RANGE,
                observed={
                    "low": low,
                    "high": high,
                    "listening": sorted(busy)[:200],
                    "defaults_in_use": {str(port): what for port, what in DEFAULT_PORTS.items() if port in busy},
                },
            )


def _range(node: str, facts: Facts) -> Iterator[Finding]:
    low, high = facts["low"], facts["high"]
    if low is None or high is None:
        return
    reserved = sum(1 for port in _ports(facts["reserved"] or "") if low <= port <= high)
    left = high - low + 1 - reserved
    if left < FEW_PORTS:
        yield warn(
            "only %d ephemeral ports are left (%d to %d, %d reserved)" % (left, low, high, reserved),
            node,
            source=RANGE,
            observed={"low": low, "high": high, "reserved": reserved},
            expected="at least %d" % FEW_PORTS,
            cause="port-in-use",
            remedy="sysctl -w net.ipv4.ip_local_port_range='32768 60999'",
        )


def _ports(text: str) -> Set[int]:
    found: Set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found.update(range(int(first), int(last or first) + 1))
    return found


def _inside(node: str, facts: Facts, wanted: Dict[int, str]) -> Iterator[Finding]:
    low, high = facts["low"], facts["high"]
    if low is None or high is None:
        return
    inside = sorted(port for port in wanted if low <= port <= high and port not in _ports(facts["reserved"] or ""))
    if inside:
        shown = ", ".join("%d (%s)" % (port, wanted[port]) for port in inside)
        yield warn(
            "%s lies in the range of ephemeral ports %d to %d: an outgoing connection can take it first"
            % (shown, low, high),
            node,
            source=RANGE,
            observed=inside,
            expected="outside of it, or reserved",
            cause="port-in-use",
            remedy="sysctl -w net.ipv4.ip_local_reserved_ports=%s"
            % ",".join(filter(None, [facts["reserved"], *map(str, inside)])),
        )


def _in_use(node: str, facts: Facts, wanted: Dict[int, str]) -> Iterator[Finding]:
    by_port: Dict[int, Listener] = {}
    for listener in facts["listeners"] or []:
        by_port.setdefault(listener["port"], listener)
    for port, why in sorted(wanted.items()):
        if port in by_port:
            owner, how = _owner(by_port[port], port)
            yield fail(
                "port %d (%s) is in use by %s" % (port, why, owner),
                node,
                source="/proc/net/tcp",
                observed=dict(by_port[port]),
                expected="free",
                cause="port-in-use",
                remedy=how,
                port=port,
            )


def _owner(listener: Listener, port: int) -> Tuple[str, str]:
    if listener["pid"] is None:
        told: Any = "a process of user %d that cannot be seen from here" % listener["uid"]
        return told, "as root: ss -ltnp 'sport = :%d'; end that process, or choose another port" % port
    return "%s (pid %d)" % (
        listener["command"],
        listener["pid"],
    ), "ps -fp %d; end it if it is left over, or choose another port" % listener["pid"]


PROBE = Probe("ephemeral-ports", "there are ephemeral ports enough, and the engine's ports are free", judge, collect)
