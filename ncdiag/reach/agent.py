"""One node's part: it answers on its address, and tries its partner of each round. Travels to nodes.

Nothing is agreed on while it runs: every agent knows the rounds, the addresses and, by its own clock, when each round begins.
"""

from __future__ import annotations

import socket
import time
from functools import partial
from typing import Any, Callable, Dict, List, Optional

from ncdiag.reach import rdma, schedule, wire

LINGER_S = 1.0
"""How long it answers after its last round, for partners whose clock is late."""


def run(request: Dict[str, Any]) -> Dict[str, Any]:
    """`request`: token, nodes, ports (tried in this order), named, limit, between, seed, start, slot_s.

    A node: address, mtu, offset_s, hostname, `rdma` (the ports that NCCL takes there, see lanes.Lane), `services` (name -> TCP port on
    which another program listens there).
    Returns number, address, started, port (None: none was free), named, `rdma` (why this node cannot test it, None: it can), and
    `tests`: [round, peer, what, outcome, detail].
    """
    own = _own_number(request["nodes"])
    if own is None:
        return {"number": None, "tests": [], "started": time.time()}
    mine, ends = request["nodes"][own], rdma.Ends()
    server = wire.Server(request["token"], own, mine["address"], _answerer(request, own, ends))
    port = next((port for port in request["ports"] if server.listen(port)), None)
    named = {}
    for one in request["named"]:
        server.listen(one)
        named[str(one)] = server.ports[one]
    if port is not None:
        server.answer_datagrams(port)
    begin = request["start"] + (mine["offset_s"] or 0.0)
    why = _ready(ends) if mine["rdma"] else None
    answer = {"number": own, "address": mine["address"], "started": time.time() - (mine["offset_s"] or 0.0), "port": port, "named": named,
              "rdma": why, "tests": _rounds(request, own, begin, ends)}  # fmt: skip
    time.sleep(LINGER_S)
    server.stop()
    ends.end()
    return answer


def _ready(ends: rdma.Ends) -> Optional[str]:
    try:
        with ends.held(rdma.START_S):  # who is early in the first round starts it by asking
            ends.start()
    except rdma.Broken as error:
        return str(error)
    return None


def _answerer(request: Dict[str, Any], own: int, ends: rdma.Ends) -> Callable[[socket.socket, int], None]:
    nodes = request["nodes"]
    return lambda connection, peer: rdma.answer(
        ends, connection, rdma.lanes_of(nodes[own]["rdma"], nodes[peer]["rdma"])
    )


def _own_number(nodes: List[Dict[str, Any]]) -> Optional[int]:
    """Which of the nodes this machine is: the one whose name it has, else the one whose address it can take."""
    name = socket.gethostname()
    named = [number for number, node in enumerate(nodes) if node["hostname"] == name]
    able = [number for number in (named or range(len(nodes))) if _holds(nodes[number]["address"])]
    return able[0] if able else None


def _holds(address: str) -> bool:
    with socket.socket(wire.family(address), socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((address, 0))
        except OSError:
            return False
    return True


def _rounds(request: Dict[str, Any], own: int, begin: float, ends: rdma.Ends) -> List[List[Any]]:
    tests: List[List[Any]] = []
    rounds = schedule.rounds(len(request["nodes"]), request["limit"], request["seed"], request["between"])
    for number, pairs in enumerate(rounds):
        partner = schedule.partners(pairs).get(own)
        at = begin + number * request["slot_s"]
        if partner is None or time.time() > at + request["slot_s"]:
            continue
        time.sleep(max(0.0, at - time.time()))
        tests += [[number, partner, *test] for test in _pair(request, own, partner, ends)]
    if request["nodes"][own]["rdma"]:  # the partner asks, and may still be at it
        time.sleep(max(0.0, begin + len(rounds) * request["slot_s"] - time.time()))
    return tests


def _pair(request: Dict[str, Any], own: int, partner: int, ends: rdma.Ends) -> List[List[Any]]:
    mine, peer, token = request["nodes"][own], request["nodes"][partner], request["token"]
    here, there = mine["address"], peer["address"]
    connections: Dict[str, Callable[[], Any]] = {"tcp": partial(_first_open, request, here, there, partner)}
    for port in request["named"]:
        connections["port %d" % port] = partial(wire.connect, token, here, there, port, partner, bulk=0)
    for name, port in peer["services"].items():
        connections["service " + name] = partial(wire.knock, here, there, port)
    work = [
        *connections.values(),
        lambda: wire.path_mtu(token, here, there, request["ports"][0], min(mine["mtu"], 9216)),
        lambda: _rdma(request, own, partner, ends) if own < partner else [],
    ]
    *results, size, over_rdma = wire.several(work, max(wire.PAIR_S, request["slot_s"] - 0.2))
    told: List[List[Any]] = [["mtu", "none" if size is None else "ok", size]]
    for name, result in zip(connections, results):  # noqa: B905 (Python 3.8)
        told.append([name, *(result or ("dropped", ""))])
    late = [["rdma", "none", "no result within the round"]]
    return told + (late if over_rdma is None else over_rdma)


def _rdma(request: Dict[str, Any], own: int, partner: int, ends: rdma.Ends) -> List[List[Any]]:
    """What rdma.test tells; nothing where one of the two has no port, or TCP does not get there either."""
    mine, peer = request["nodes"][own], request["nodes"][partner]
    pairs = rdma.lanes_of(mine["rdma"], peer["rdma"])
    for port in request["ports"] if pairs else ():
        try:
            connection = wire.dial(request["token"], mine["address"], peer["address"], port, own)
        except OSError:
            continue
        with connection:
            return rdma.test(ends, connection, pairs)
    return []


def _first_open(request: Dict[str, Any], own: str, peer: str, partner: int) -> Any:
    """The peer listens on the first of the ports that was free there: a refusal is one only when all refuse."""
    outcome = ("refused", "")
    for port in request["ports"]:
        outcome = wire.connect(request["token"], own, peer, port, partner)
        if outcome[0] not in ("refused", "busy"):
            break
    return outcome
