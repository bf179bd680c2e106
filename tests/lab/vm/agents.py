"""In the machine: two agents of `ncdiag reach`, each with a host name of its own, test RDMA over the fabric that stands."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

AGENT = """
import ctypes, json, socket, sys
assert ctypes.CDLL(None, use_errno=True).unshare(0x04000000) == 0  # CLONE_NEWUTS
socket.sethostname(sys.argv[1])
sys.path.insert(0, "/lab")
from ncdiag.reach import agent
print(json.dumps(agent.run(json.loads(sys.stdin.read()))), flush=True)
"""
ADDRESSES = ("10.77.0.1", "10.77.0.2")
LEAD_S, SLOT_S, LIMIT_S = 14.0, 4.5, 60.0

Lane = tuple[int, int]
"""The GID index of rxe0, that of rxe1."""


def test(lanes: Sequence[Lane], mtu: int = 1500) -> dict[str, Any]:
    """What was asked of the agents and what each told, in the order of ADDRESSES."""
    nodes: list[dict[str, Any]] = [
        {"address": address, "hostname": f"host{side}", "mtu": mtu, "offset_s": 0.0, "services": {},
         "rdma": [{"device": f"rxe{side}", "number": 1, "link_layer": "Ethernet", "gid_index": lane[side], "tc": 0, "sl": 0, "pkey": 0}
                  for lane in lanes]}
        for side, address in enumerate(ADDRESSES)
    ]  # fmt: skip
    request = {"token": "lab", "nodes": nodes, "ports": [41001], "named": [], "limit": None, "between": None, "seed": 1,
               "start": time.time() + LEAD_S, "slot_s": SLOT_S}  # fmt: skip
    agents = [
        subprocess.Popen([sys.executable, "-S", "-E", "-c", AGENT, node["hostname"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
        for node in nodes
    ]  # fmt: skip
    told = json.dumps(request).encode()
    with ThreadPoolExecutor(len(agents)) as pool:  # both at once: neither waits for the other's pipe
        said = list(pool.map(lambda agent: _said(agent, told), agents))
    errors = b"\n".join(error for _, error in said).decode(errors="replace")
    assert all(out for out, _ in said), f"an agent told nothing: {errors}"
    reports = [json.loads(out) for out, _ in said]
    return {"request": request, "reports": reports, "left": [agent.returncode for agent in agents]}


def _said(agent: subprocess.Popen[bytes], told: bytes) -> tuple[bytes, bytes]:
    """Its output and what it said of errors; it is ended when it takes longer than LIMIT_S."""
    try:
        return agent.communicate(told, LIMIT_S)
    except subprocess.TimeoutExpired:
        agent.kill()
        out, error = agent.communicate()
        return b"", error + b"\nended after %g s; it had told %d bytes" % (LIMIT_S, len(out))
