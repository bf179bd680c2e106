"""One node's part: it answers on its address, and tries its partner of each round. Travels to nodes.

Nothing is agreed on while it runs: every agent knows the rounds, the addresses and, by its own clock, when each round begins.
"""

from __future__ import annotations

import socket
import time
from typing import Any, Dict, List, Optional

from ncdiag.reach import schedule, wire

LINGER_S = 1.0
"""How long it answers after its last round, for partners whose clock is late."""


def run(request: Dict[str, Any]) -> Dict[str, Any]:
    """`request`: token, nodes (`{"address", "mtu", "offset_s"}` each), ports (tried in this order), named, limit, seed, start, slot_s.

    Returns number, address, started, port (None: none was free), named, and `tests`: [round, peer, what, outcome, detail].
    """
    own = _own_number(request["nodes"])
    if own is None:
        return {"number": None, "tests": [], "started": time.time()}
    mine = request["nodes"][own]
    server = wire.Server(request["token"], own, mine["address"])
    port = next((port for port in request["ports"] if server.listen(port)), None)
    named = {}
    for one in request["named"]:
        server.listen(one)
        named[str(one)] = server.ports[one]
    if port is not None:
        server.answer_datagrams(port)
    begin = request["start"] + (mine["offset_s"] or 0.0)
    answer = {"number": own, "address": mine["address"], "started": time.time() - (mine["offset_s"] or 0.0), "port": port, "named": named,
              "tests": _rounds(request, own, begin)}  # fmt: skip
    time.sleep(LINGER_S)
    server.stop()
    return answer


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


def _rounds(request: Dict[str, Any], own: int, begin: float) -> List[List[Any]]:
    tests: List[List[Any]] = []
    for number, pairs in enumerate(schedule.rounds(len(request["nodes"]), request["limit"], request["seed"])):
        partner = schedule.partners(pairs).get(own)
        at = begin + number * request["slot_s"]
        if partner is None or time.time() > at + request["slot_s"]:
            continue
        time.sleep(max(0.0, at - time.time()))
        tests += [[number, partner, *test] for test in _pair(request, own, partner)]
    return tests


def _pair(request: Dict[str, Any], own: int, partner: int) -> List[List[Any]]:
    mine, peer, token = request["nodes"][own], request["nodes"][partner], request["token"]
    what = ["tcp", "mtu", *("port %d" % port for port in request["named"])]
    work = [
        lambda: _first_open(request, mine["address"], peer["address"], partner),
        lambda: wire.path_mtu(token, mine["address"], peer["address"], request["ports"][0], min(mine["mtu"], 9216)),
        *(
            lambda port=port: wire.connect(token, mine["address"], peer["address"], port, partner, bulk=0)
            for port in request["named"]
        ),
    ]
    results = wire.several(work)
    told: List[List[Any]] = []
    for index, name in enumerate(what):
        result = results[index]
        if name == "mtu":
            told.append([name, "none" if result is None else "ok", result])
        else:
            told.append([name, *(result or ("dropped", ""))])
    return told


def _first_open(request: Dict[str, Any], own: str, peer: str, partner: int) -> Any:
    """The peer listens on the first of the ports that was free there: a refusal is one only when all refuse."""
    outcome = ("refused", "")
    for port in request["ports"]:
        outcome = wire.connect(request["token"], own, peer, port, partner)
        if outcome[0] not in ("refused", "busy"):
            break
    return outcome
