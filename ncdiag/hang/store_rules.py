"""The meeting at the store: who came, who dials the wrong place, who never came."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Tuple

from ncdiag.hang.addresses import Picture, Target, flag, loopback, split, target
from ncdiag.hang.claims import LIKELY, POSSIBLE, Claim, at_own_line, claim, names, numbers, seen
from ncdiag.hang.scene import Scene, View
from ncdiag.hang.verdict import Wait
from ncdiag.model import Evidence
from ncdiag.nodeset import counted
from ncdiag.stages import order
from ncdiag.stages.order import GPU, LOOSE, PEERS, STORE


def layout(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """Nodes that were told different sizes, or the same place in the group."""
    sizes: Dict[int, List[View]] = {}
    for view in scene.ranks:
        if view.state.world_size:
            sizes.setdefault(view.state.world_size, []).append(view)
    if len(sizes) > 1:
        text = "; ".join(f"{names(views)}: {size}" for size, views in sorted(sizes.items()))
        yield claim(
            "rank-layout-wrong",
            LIKELY,
            f"the ranks do not agree on the world size ({text})",
            [Evidence(view.name, f"world size {size}") for size, views in sizes.items() for view in views[:2]],
            where={"node": min(sizes.items(), key=lambda item: len(item[1]))[1][0].state.node},
        )
    yield from _same_place(scene)
    yield from _same_number(scene, picture)


def _same_place(scene: Scene) -> Iterator[Claim]:
    heads = [view for view in scene.managers if flag(view, "nnodes") not in (None, "1")]
    for name in ("node-rank", "tensor-parallel-size", "pipeline-parallel-size", "nnodes"):
        values: Dict[str, List[View]] = {}
        for view in heads:
            values.setdefault(flag(view, name) or ("0" if name == "node-rank" else "1"), []).append(view)
        clash = [views for views in values.values() if len({view.state.node for view in views}) > 1]
        if name == "node-rank" and clash:
            yield claim(
                "rank-layout-wrong",
                LIKELY,
                f"{names(clash[0])} both have --node-rank {flag(clash[0][0], name)}",
                [Evidence(view.name, view.state.title) for view in clash[0]],
                culprits=clash[0][1:],
            )
        elif name != "node-rank" and len(values) > 1:
            text = "; ".join(f"{views[0].state.node}: {value}" for value, views in sorted(values.items()))
            yield claim(
                "rank-layout-wrong",
                LIKELY,
                f"the nodes were started with different --{name} ({text})",
                [Evidence(view.name, view.state.title) for view in heads],
                where={"node": heads[-1].state.node},
            )


def _same_number(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """Processes that were told the same number in the same group (its size and its store are the same), while another number is nobody's; those of one
    machine have to be on their way into the group, as what a rank only started is not."""
    told: Dict[Tuple[int, int, str, int], List[View]] = {}
    for view in scene.ranks:
        place = target(scene, view)
        if view.rank is None or not view.state.world_size or place is None or not place.port:
            continue
        host = view.home if loopback(place.host) else place.host
        told.setdefault((view.rank, view.state.world_size, host, place.port), []).append(view)
    for (rank, size, host, port), views in sorted(told.items()):
        joining = [view for view in views if view.stage in ("rendezvous", "mesh") and view.state.below is None]
        if not scene.absent or len(views) < 2 or (len({view.home for view in views}) < 2 and len(joining) < len(views)):
            continue
        others = [view for view in views if view.home not in (host, picture.node_of(host))]
        stray = others if rank == 0 and len(others) < len(views) else []  # rank 0 belongs to the node with the store
        yield claim(
            "rank-layout-wrong",
            LIKELY,
            f"{names(views)} were all told to be rank {rank} of {size}; {numbers(scene.absent)} is nobody's",
            [Evidence(view.name, f"rank {rank} of {size}, store at port {port} of {host}") for view in views],
            culprits=stray,
            where=None if stray else {"rank": rank},
        )


def meeting(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """Ranks that wait at the store."""
    at_store = [view for view in scene.ranks if view.stage == "rendezvous" and view.witness]
    coming = bool(scene.absent) and any(view.verdict == "progressing" for view in scene.managers)
    if not at_store or coming:  # who starts the ranks that are not there yet is still at work
        return
    master = _master(scene, picture)
    if master is None:
        yield from _no_master(scene, at_store)
        return
    who, port = master
    strayed = _strayed(scene, picture, who, port, at_store)
    yield from strayed
    if not strayed:
        yield from _never_came(scene, picture, who, port, at_store)


def asked_in_vain(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """A rank waits for a key of the store in code of its own, while all others wait in a collective, where nobody sets one."""
    asks = [view for view in scene.ranks if view.witness and view.waiting == STORE and view.stage in LOOSE]
    others = [view for view in scene.ranks if view not in asks]
    if not asks or not others or not all(view.witness and view.waiting in (PEERS, GPU) for view in others):
        return
    if any(view.stage != "collective" for view in others):
        return
    whole = not scene.absent and scene.world_size == len(scene.ranks) and len(asks) * 2 < len(scene.ranks)
    tail = "" if scene.absent else ", where nobody sets one"
    found = claim(
        "rank-stuck-outside-collective",
        LIKELY if whole else POSSIBLE,
        f"{names(asks)} {'wait' if len(asks) > 1 else 'waits'} for a key of the store"
        f"{at_own_line(asks[0])}; {names(others)} {'wait' if len(others) > 1 else 'waits'} in a collective{tail}",
        [seen(view) for view in (asks[0], others[0])],
        culprits=asks,
        waits=[Wait(other.name, view.name, "in a collective, the other is not") for view in asks for other in others],
    )
    found.cause.remedy = "find which rank is to set that key and whether it did: the name must be the same on all ranks, and the store (its prefix), too"
    yield found


def _master(scene: Scene, picture: Picture) -> Optional[Tuple[View, int]]:
    """The rank that holds the store, and its port: the port it listens on and is its own client of."""
    for view in scene.ranks:
        told = target(scene, view)
        for socket in view.state.sockets:
            port = split(socket.local)[1]
            if socket.state != "LISTEN" or port is None:
                continue
            own = any(split(s.remote)[1] == port for s in view.state.sockets if s.state == "ESTABLISHED")
            if own and (told is None or told.port in (None, port) or view.rank == 0):
                return view, port
    return None


def _strayed(scene: Scene, picture: Picture, master: View, port: int, at_store: List[View]) -> List[Claim]:
    """Ranks at the store that are not its clients, and have no SYN on its way either."""
    found = []
    right = target(scene, master)
    for view in at_store:
        states = {socket.state for socket in view.state.sockets if split(socket.remote)[1] == port}
        if view is master or "ESTABLISHED" in states or "SYN_SENT" in states:
            continue
        if any(socket.state == "SYN_SENT" for socket in view.state.sockets):
            continue
        found.append(_stray(view, target(scene, view), master, right, port))
    return found


def _stray(view: View, told: Optional[Target], master: View, right: Optional[Target], port: int) -> Claim:
    evidence = [
        Evidence(f"sockets of {view.name}", f"no connection to port {port}"),
        Evidence(f"sockets of {master.name}", f"LISTEN *:{port}"),
    ]
    evidence += [Evidence(v.name, t.source) for v, t in ((view, told), (master, right)) if t is not None]
    arrow = [Wait(view.name, master.name, "at the store")]
    if told is not None and told.port not in (None, port):
        return claim(
            "bootstrap-peer-unreachable",
            LIKELY,
            f"{view.name} looks for the store on port {told.port}, {master.name} holds it on port {port}",
            evidence,
            culprits=[view],
            waits=arrow,
            known={"HOST": told.host, "PORT": port},
        )
    if told is not None and right is not None and told.host != right.host:
        return claim(
            "node-ip-wrong-interface",
            LIKELY,
            f"{view.name} looks for the store at {told.host}, the others at {right.host}",
            evidence,
            culprits=[view],
            waits=arrow,
        )
    place = {"node": view.state.node, "rank": view.rank, "peer": master.state.node, "stage": view.stage}
    if view.home == master.home:  # no firewall stands between two programs of one machine
        return claim(
            "bootstrap-peer-unreachable",
            POSSIBLE,
            f"{view.name} waits at a store, and not at that of {master.name} on port {port} of the same machine: it may have taken another address or "
            "port than its environment has (--locals reads them)",
            evidence,
            culprits=[view],
            waits=arrow,
            known={"HOST": right.host, "PORT": port} if right is not None else None,
        )
    enough = told is not None and bool(view.state.sockets or master.state.sockets)
    return claim(
        "bootstrap-blocked-firewall",
        LIKELY if enough and told and told.port else POSSIBLE,
        f"{master.name} listens on port {port}, and {view.name} is turned away",
        evidence,
        where=place,
        waits=arrow,
    )


def _never_came(scene: Scene, picture: Picture, master: View, port: int, at_store: List[View]) -> Iterator[Claim]:
    clients = picture.joined(port)
    late = [
        view
        for view in scene.ranks
        if view not in at_store and order(view.stage) < order("rendezvous") and view.verdict not in ("dead",)
    ]
    absent = scene.absent
    waits = master.match.why is not None and "waitForWorkers" in master.match.why.name
    enough = len(clients) >= (scene.world_size or 0)
    if late or not scene.world_size or not absent or (enough and not waits):
        return
    arrows = [Wait(master.name, f"rank {number}", "the store waits for it") for number in absent]
    yield claim(
        "rank-missing",
        POSSIBLE if enough else LIKELY,
        f"{len(clients)} of {counted(scene.world_size or 0, 'rank')} came to the store of {master.name}; "
        f"{numbers(absent)} never did, and no process of it was seen",
        [
            Evidence(
                f"sockets of {master.name}",
                f"port {port} has {len(clients)} of {counted(scene.world_size or 0, 'client')}",
            ),
            seen(master),
        ],
        absent=absent,
        waits=arrows,
    )


def _no_master(scene: Scene, at_store: List[View]) -> Iterator[Claim]:
    dialing = any(socket.state == "SYN_SENT" for view in at_store for socket in view.state.sockets)
    evidence = [seen(view) for view in at_store[:4]]
    arrow = [Wait(view.name, "the store", "at the store") for view in at_store]
    if 0 in scene.absent and not dialing:
        yield claim(
            "rank-missing",
            POSSIBLE,
            f"{names(at_store)} wait for the store of rank 0, and no process of rank 0 was seen",
            evidence,
            absent=[0],
            waits=arrow,
        )
    elif scene.absent and not dialing:
        yield claim(
            "rank-missing",
            POSSIBLE,
            f"{names(at_store)} wait at the store, and no process of {numbers(scene.absent)} was seen",
            evidence,
            absent=scene.absent,
            waits=arrow,
        )


def launchers(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """torchrun starts no rank before all its nodes have met."""
    waiting = [view for view in scene.managers if view.stage == "rendezvous" and view.witness]
    dialing = any(socket.state == "SYN_SENT" for view in waiting for socket in view.state.sockets)
    if not waiting or scene.ranks or dialing:
        return
    nodes = flag(waiting[0], "nnodes") or flag(waiting[0], "nnode") or "?"
    here = len({view.state.node for view in waiting})
    holds = any(socket.state == "LISTEN" for view in waiting for socket in view.state.sockets)
    known = nodes.split(":")[0]
    few = known.isdecimal() and here < int(known)
    yield claim(
        "rank-missing",
        LIKELY if holds and few else POSSIBLE,
        f"{names(waiting)} wait{'s' if len(waiting) == 1 else ''} for the other nodes: {here} of {nodes} seen here",
        [seen(waiting[0]), Evidence(waiting[0].name, waiting[0].state.title)],
        where={"node": waiting[0].state.node, "stage": "rendezvous"},
        waits=[Wait(view.name, "the other nodes", "torchrun's rendezvous") for view in waiting],
    )
