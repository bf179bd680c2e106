"""Where ranks listen for each other: an address that the others cannot come to, while all wait."""

from __future__ import annotations

from typing import Dict, Iterator, List, Set

from ncdiag.hang.addresses import WILDCARDS, Picture, loopback, split
from ncdiag.hang.claims import LIKELY, POSSIBLE, SURE, Claim, chosen, claim, names
from ncdiag.hang.scene import Scene, View
from ncdiag.model import Evidence
from ncdiag.stages.order import PEERS, QUEUE

_CONNECTING = ("mesh", "groups", "nccl-init", "communicators")
_RAS_PORT = 28028
"""NCCL's own status service listens on loopback by design (NCCL_RAS_ADDR)."""
_BRIDGE = "172.17."
"""Docker's default bridge: every host has 172.17.0.1, none reaches another's."""


def queues(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """vLLM's message queues (zmq) of several nodes listen on VLLM_HOST_IP or what vLLM takes for it."""
    if not picture.spans_nodes or not any(view.waiting == QUEUE for view in scene.views):
        return
    for view in scene.views:
        told = view.state.settings.get("VLLM_HOST_IP", "")
        bad = sorted({host for host in _hosts(view) if loopback(host)})
        takes_part = view.waiting == QUEUE or view.state.role in ("engine-core", "headless")
        if bad and takes_part and (not told or loopback(told)):
            yield claim(
                "node-ip-wrong-interface",
                SURE if told else LIKELY,
                _says(view, bad),
                [_listens(view, bad), *chosen(view)],
                culprits=[view],
            )


def groups(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """gloo and NCCL listen on the interface that they are told or choose."""
    waiting = [view for view in scene.ranks if view.waiting == PEERS and view.stage in _CONNECTING]
    if not picture.spans_nodes or not waiting:
        return
    for view in waiting:
        yield from _on_loopback(view)
    yield from _on_odd_network(scene, picture, waiting)


def _hosts(view: View) -> List[str]:
    """The addresses, not wildcards, on which a process listens for others."""
    found = []
    for socket in view.state.sockets:
        host, port = split(socket.local)
        if socket.state == "LISTEN" and host not in WILDCARDS and port != _RAS_PORT:
            found.append(host)
    return found


def _listens(view: View, hosts: List[str]) -> Evidence:
    return Evidence(f"sockets of {view.name}", f"LISTEN on {', '.join(hosts)}")


def _says(view: View, hosts: List[str]) -> str:
    return f"{view.name} listens for the other nodes on {', '.join(hosts)}, which only its own node reaches"


def _on_loopback(view: View) -> Iterator[Claim]:
    hosts = _hosts(view)
    bad = sorted({host for host in hosts if loopback(host)})
    named = {view.state.settings.get("GLOO_SOCKET_IFNAME"), view.state.settings.get("NCCL_SOCKET_IFNAME")} - {None}
    if bad and "lo" in named:
        yield claim(
            "socket-ifname-wrong", LIKELY, _says(view, bad), [_listens(view, bad), *chosen(view)], culprits=[view]
        )
    elif bad and len(bad) == len(set(hosts)):
        slug = "socket-ifname-wrong" if named else "hostname-resolves-to-loopback"
        yield claim(slug, LIKELY, _says(view, bad), [_listens(view, bad), *chosen(view)], culprits=[view])


def _on_odd_network(scene: Scene, picture: Picture, waiting: List[View]) -> Iterator[Claim]:
    """Ranks that listen elsewhere than where the other nodes have reached them."""
    odd = {id(view): hosts for view in waiting if (hosts := _odd_hosts(picture, view))}
    views = [view for view in waiting if id(view) in odd]
    owners: Dict[str, Set[str]] = {}
    for view in views:
        for host in odd[id(view)]:
            owners.setdefault(host, set()).add(view.home)
    others = [view for view in scene.ranks if view not in views and view.state.sockets]
    for view in views:
        hosts = odd[id(view)]
        twice = [host for host in hosts if len(owners[host]) > 1]
        several = "NCCL_SOCKET_IFNAME" not in view.state.settings and bool(set(_hosts(view)) & _usual(picture, view))
        if not (twice or hosts[0].startswith(_BRIDGE) or (not several and (others or len(views) == 1))):
            continue  # a network of their own, or several at a time, as NCCL does by itself: no fault
        likely = bool(twice or hosts[0].startswith(_BRIDGE) or (others and chosen(view)))
        tail = f"; {names(scene.ranks)} have that address on several nodes" if twice else ""
        yield claim(
            "socket-ifname-wrong",
            LIKELY if likely else POSSIBLE,
            f"{view.name} listens for its peers on "
            f"{', '.join(hosts)}, the nodes reach each other by other addresses "
            f"({', '.join(sorted(_usual(picture, view)))}){tail}",
            [_listens(view, hosts), *chosen(view)],
            culprits=[view],
        )


def _usual(picture: Picture, view: View) -> Set[str]:
    """Addresses of the node that carry its connections: to the store, and those that others opened."""
    usual = {address for home in picture.known if home != view.home for address in picture.proven(view.home, home)}
    return usual | {split(socket.local)[0] for socket in view.state.sockets if socket.state == "ESTABLISHED"}


def _odd_hosts(picture: Picture, view: View) -> List[str]:
    usual = _usual(picture, view)
    hosts = sorted({host for host in _hosts(view) if not loopback(host) and host not in usual})
    return hosts if usual and all(not loopback(host) for host in usual) else []
