"""Who listens where, who dials whom: the sockets of all processes seen as one picture."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

from ncdiag.hang.scene import Scene, View
from ncdiag.model import Socket

WILDCARDS = ("*", "0.0.0.0", "::", "")
_FLAG = re.compile(r"--(master-addr|master[-_]port|master_addr|node-rank|nnodes)[= ]+(\S+)")
_INIT = re.compile(r"distributed_init_method=tcp://(\[[^\]]+\]|[^:\s]+):(\d+)")


@functools.lru_cache(maxsize=65536)
def split(address: str) -> Tuple[str, Optional[int]]:
    """`("192.0.2.7", 29500)` of `192.0.2.7:29500` or `[::ffff:192.0.2.7]:29500`; the port is None where there is none."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if host.lower().startswith("::ffff:"):
        host = host[7:]
    return host.split("%")[0], int(port) if port.isdecimal() else None


def loopback(host: str) -> bool:
    """Whether no other node can reach it."""
    return host.startswith("127.") or host in ("::1", "localhost")


@dataclass(frozen=True)
class Dial:
    """A connection that somebody tries and does not get."""

    view: View
    socket: Socket
    host: str
    port: int
    listener: Optional[View]
    """Who listens on that port, exactly there or on all addresses of the node that has `host`."""
    exact: bool
    """Whether the listener is bound to `host` itself."""


@dataclass(frozen=True)
class Target:
    """The address of the store as one process was told it."""

    host: str
    port: Optional[int]
    source: str


class Picture:
    """All sockets of the scene, by address."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.known: Dict[str, Set[str]] = {home: set() for home in scene.homes}
        """home of a view -> addresses that it talks to other addresses with."""
        self.bound: Dict[str, Set[str]] = {home: set() for home in scene.homes}
        """home of a view -> addresses that a process there listens on."""
        self._listens: Dict[int, List[Tuple[View, str]]] = {}
        self._pairs: Dict[str, Set[Tuple[str, str]]] = {home: set() for home in scene.homes}
        for view, socket in self._each():
            (local, port), remote = split(socket.local), split(socket.remote)[0]
            if socket.state == "LISTEN":
                self._listens.setdefault(port or 0, []).append((view, local))
                if local not in WILDCARDS:
                    self.bound[view.home].add(local)
            elif not loopback(local):
                self.known[view.home].add(local)
                if socket.state == "ESTABLISHED":
                    self._pairs[view.home].add((local, remote))
                if socket.state == "ESTABLISHED" and local == remote:
                    self.bound[view.home].add(local)

    def _each(self) -> Iterator[Tuple[View, Socket]]:
        for view in self.scene.views:
            for socket in view.state.sockets:
                yield view, socket

    @property
    def spans_nodes(self) -> bool:
        """Whether the group has ranks in more than one place, as far as is known: seen there, or meant to be there."""
        places = {(view.state.node, view.state.netns) for view in self.scene.ranks}
        if len({node for node, _ in places}) > 1 or len({netns for _, netns in places if netns}) > 1:
            return True
        told = [found for view in self.scene.ranks if (found := target(self.scene, view)) is not None]
        return bool(self.scene.absent) and any(not loopback(found.host) for found in told)

    def node_of(self, host: str) -> Optional[str]:
        """The node that has the address; None where none of those seen has."""
        for table in (self.known, self.bound):
            for node in sorted(table):
                if host in table[node]:
                    return node
        return None

    def listener(self, host: str, port: int) -> Tuple[Optional[View], bool]:
        """Who listens on `host:port`, and whether on just that address."""
        wide: Optional[View] = None
        for view, local in self._listens.get(port, ()):
            if local == host and not loopback(host):
                return view, True
            if local in WILDCARDS and (wide is None or self.node_of(host) == view.home):
                wide = view
        return wide, False

    def dials(self) -> List[Dial]:
        """Every attempt to connect that has no answer."""
        found = []
        for view, socket in self._each():
            host, port = split(socket.remote)
            if socket.state == "SYN_SENT" and port is not None:
                who, exact = self.listener(host, port)
                found.append(Dial(view, socket, host, port, who, exact))
        return found

    def proven(self, node: str, other: str) -> Set[str]:
        """Addresses of `node` at which `other` has reached it."""
        theirs = self.known.get(other, set())
        return {local for local, remote in self._pairs.get(node, ()) if remote in theirs}

    def strangers(self, views: Sequence[View]) -> Set[str]:
        """Addresses of no node seen here that `views` have connections to: ranks elsewhere that did come."""
        own = set().union(*self.known.values(), *self.bound.values())
        remotes = {
            split(socket.remote)[0] for view in views for socket in view.state.sockets if socket.state == "ESTABLISHED"
        }
        return {host for host in remotes if host not in own and not loopback(host)}

    def unacknowledged(self) -> List[Tuple[View, Socket]]:
        """Connections to another address on which bytes wait for an answer that does not come."""
        return [
            (view, socket)
            for view, socket in self._each()
            if socket.state == "ESTABLISHED"
            and (socket.send_queue > 0 or socket.retransmits > 0)
            and split(socket.local)[0] != split(socket.remote)[0]
            and not loopback(split(socket.remote)[0])
        ]

    def joined(self, port: int) -> Set[str]:
        """`address:port` of the clients that the store on `port` has, itself included."""
        return {
            socket.remote
            for view, socket in self._each()
            if socket.state == "ESTABLISHED"
            and split(socket.local)[1] == port
            and any(s.state == "LISTEN" and split(s.local)[1] == port for s in view.state.sockets)
        }


def target(scene: Scene, view: View) -> Optional[Target]:
    """Where a rank was told to find the store: its log, its environment, its own or its parents' command line."""
    told = view.state.variables
    host = told.get("hostname") or told.get("host") or told.get("host_name") or told.get("master_addr")
    port = told.get("port") or told.get("master_port")
    if host and port and port.isdecimal():
        return Target(host.strip("'\"[]"), int(port), f"variables host={host} port={port}")
    for line in reversed(view.state.log_tail):
        match = _INIT.search(line)
        if match:
            return Target(match[1].strip("[]"), int(match[2]), line.strip())
    by_pid = {(other.state.node, other.state.pid): other for other in scene.views}
    current: Optional[View] = view
    seen: Set[int] = set()
    while current is not None and current.state.pid not in seen:
        seen.add(current.state.pid)
        flags = {name.replace("_", "-"): value for name, value in _FLAG.findall(current.state.title)}
        host = flags.get("master-addr") or current.state.settings.get("MASTER_ADDR")
        port = flags.get("master-port") or current.state.settings.get("MASTER_PORT")
        if host:
            words = (
                f"--master-addr {host} --master-port {port}"
                if "master-addr" in flags
                else (f"MASTER_ADDR={host} MASTER_PORT={port}")
            )
            return Target(host.strip("[]"), int(port) if port and port.isdecimal() else None, words)
        parent = current.state.parent
        current = by_pid.get((current.state.node, parent)) if parent is not None else None
    return None


def flag(view: View, name: str) -> Optional[str]:
    """The value of a flag on the command line of a process, None where it is not there."""
    match = re.search(r"--" + re.escape(name) + r"[= ]+(\S+)", view.state.title)
    return match[1] if match else None
