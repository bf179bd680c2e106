"""What connections say: who dials without an answer, where bytes pile up, who waits for a name."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Set, Tuple

from ncdiag.hang.addresses import Dial, Picture, split
from ncdiag.hang.claims import LIKELY, POSSIBLE, SURE, Claim, at_own_line, chosen, claim, names
from ncdiag.hang.scene import Scene, View
from ncdiag.hang.verdict import Wait
from ncdiag.model import Evidence, Socket
from ncdiag.nodeset import counted
from ncdiag.stages.order import QUEUE, STORE

_GCS = 6379
_WEB = (80, 443, 3128, 8080)
_TIMEOUTS = 3
"""The kernel sends again after 0.2, 0.6 and 1.4 s: so often it does within the window, unless the other side answers."""
_JUMBO = 1400
"""Bytes: more than this waiting in one direction is more than fits the smallest usual MTU."""


def unanswered(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """SYN_SENT: somebody dials and hears nothing."""
    done = set()
    lost = [(view, socket) for view, socket in picture.unacknowledged() if _cut(socket)]
    for dial in picture.dials():
        key = (dial.view.state.pid, dial.host, dial.port)
        if key in done or (dial.port in _WEB and dial.listener is None):
            continue
        done.add(key)
        yield _dial(picture, dial, [s for v, s in lost if v.home == dial.view.home and split(s.remote)[0] == dial.host])


def _dial(picture: Picture, dial: Dial, lost: List[Socket]) -> Claim:
    """`lost`: older connections to the same address on which nothing passes any more."""
    node, home, where = dial.view.state.node, dial.view.home, f"{dial.host}:{dial.port}"
    evidence = [Evidence(f"sockets of {dial.view.name}", f"{dial.socket.state} {dial.socket.local} -> {where}")]
    arrow = [Wait(dial.view.name, dial.listener.name if dial.listener else where, f"SYN_SENT to {where}")]
    place = {
        "node": node,
        "rank": dial.view.rank,
        "peer": dial.listener.state.node if dial.listener else None,
        "stage": dial.view.stage,
    }
    if dial.port == _GCS or dial.view.stage == "ray-connect" or where == dial.view.state.settings.get("RAY_ADDRESS"):
        return claim(
            "ray-gcs-unreachable",
            LIKELY,
            f"{dial.view.name} dials the Ray head at {where} and gets no answer",
            evidence,
            where=place,
            waits=arrow,
        )
    if lost:
        evidence += [
            Evidence(
                f"sockets of {node}", f"ESTABLISHED {s.local} -> {s.remote}, {counted(s.retransmits, 'retransmit')}"
            )
            for s in lost[:3]
        ]
        return claim(
            "bootstrap-peer-unreachable",
            LIKELY,
            f"nothing passes any more between {node} and {place['peer'] or dial.host}: {dial.view.name} dials {where} and "
            "gets no answer, nor do the connections that it had",
            evidence,
            where=place,
            waits=arrow,
            known={"HOST": dial.host, "PORT": dial.port},
        )
    if dial.listener is None:
        return claim(
            "bootstrap-peer-unreachable",
            POSSIBLE,
            f"{dial.view.name} dials {where} and gets no answer; who should listen there was not seen",
            evidence,
            where=place,
            waits=arrow,
            known={"HOST": dial.host, "PORT": dial.port},
        )
    other = dial.listener.home
    evidence.append(
        Evidence(f"sockets of {dial.listener.name}", f"LISTEN {dial.host if dial.exact else '*'}:{dial.port}")
    )
    usual = picture.proven(other, home) or picture.known[other]
    if dial.host in usual or (dial.exact and not usual):
        return _blocked(dial, where, evidence, arrow, place, bool(usual))
    if not dial.exact:
        return claim(
            "node-ip-wrong-interface",
            LIKELY,
            f"{dial.view.name} looks for port {dial.port} at {dial.host}, "
            f"which no node seen here has; {dial.listener.name} listens on that port",
            evidence,
            culprits=[dial.view],
            waits=arrow,
        )
    slug = "node-ip-wrong-interface" if dial.view.waiting in (QUEUE, STORE) else "socket-ifname-wrong"
    return claim(
        slug,
        SURE if picture.proven(other, home) else LIKELY,
        f"{dial.listener.name} listens on {where}, which {node} does not reach; {node} reaches it at "
        f"{', '.join(sorted(usual))}",
        evidence + chosen(dial.listener),
        culprits=[dial.listener],
        waits=arrow,
    )


def _blocked(
    dial: Dial, where: str, evidence: List[Evidence], arrow: List[Wait], place: Dict[str, Any], proven: bool
) -> Claim:
    listener = dial.listener
    assert listener is not None
    return claim(
        "bootstrap-blocked-firewall",
        LIKELY if proven else POSSIBLE,
        f"{listener.name} listens on {where}, the packets of {dial.view.name} to it are dropped",
        evidence,
        where=place,
        waits=arrow,
    )


def silent_link(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """Everybody waits for everybody, and what was sent is not acknowledged."""
    waiting = [view for view in scene.ranks if view.witness]
    if not waiting or len(waiting) < len([view for view in scene.ranks if view.verdict != "dead"]):
        return
    stuck = picture.unacknowledged()
    ends = {(socket.local, socket.remote) for _, socket in stuck}
    both = [(view, socket) for view, socket in stuck if _unheard(socket, ends)]
    for view, socket in both[:1]:
        node = (picture.node_of(split(socket.remote)[0]) or split(socket.remote)[0]).split(" net:")[0]
        evidence = [
            Evidence(
                f"sockets of {v.name}",
                f"ESTABLISHED {s.local} -> {s.remote}, {s.send_queue} bytes not "
                f"acknowledged, {counted(s.retransmits, 'retransmit')}",
            )
            for v, s in both[:4]
        ]
        place = {"node": view.state.node, "peer": node, "stage": view.stage}
        if max(s.send_queue for _, s in both) > _JUMBO and not any((s.remote, s.local) in ends for _, s in both):
            yield claim(
                "mtu-mismatch",
                POSSIBLE,
                f"large messages from {view.state.node} to {node} do not arrive",
                evidence,
                where=place,
                known={"HOST": split(socket.remote)[0]},
            )
        yield claim(
            "bootstrap-peer-unreachable",
            LIKELY if len(both) > 1 else POSSIBLE,
            f"nothing passes any more between {view.state.node} and {node}; {names(waiting)} wait for each other",
            evidence,
            where=place,
            known={"HOST": split(socket.remote)[0], "PORT": split(socket.remote)[1]},
        )


def _cut(socket: Socket) -> bool:
    return not socket.moved and socket.retransmits >= _TIMEOUTS


def _unheard(socket: Socket, ends: Set[Tuple[str, str]]) -> bool:
    """A link that is only slow always has bytes on their way, and loses some. What is cut off times out again and again."""
    if socket.moved is None:
        return (socket.remote, socket.local) in ends or socket.retransmits > 0
    return socket.retransmits >= _TIMEOUTS


def _of(view: View) -> str:
    """`, which the name server 192.0.2.53:53 does not answer`; empty where that one is not seen."""
    calls = [view.call, *(thread.get("call") or {} for thread in view.state.threads)]
    asked = next((call["asks"][0] for call in calls if call.get("asks")), "")
    return f", which the name server {asked} has not answered" if asked else ""


def lookups(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """A rank waits for the answer of a name server."""
    for view in scene.views:
        if view.waiting == "dns" and view.verdict in ("stuck", "unknown"):
            yield claim(
                "dns-unresponsive",
                LIKELY if view.verdict == "stuck" else POSSIBLE,
                f"{view.name} waits for a name look-up{at_own_line(view)}{_of(view)}",
                [Evidence(f"stack of {view.name}", view.match.why.name if view.match.why else "dns")],
                culprits=[view],
            )
