"""The nodes of a Ray cluster: one task pinned to every node, zero CPUs asked, nothing to be installed there.

Works beside a running engine. The payload travels as bytes in the task's argument, and runs in an interpreter of its own.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Set
from typing import Any

from ncdiag.fleet.base import FleetError, Progress, Request
from ncdiag.fleet.clock import Stamp
from ncdiag.fleet.remote import Answer, RemoteFleet, loader, outcome, pack
from ncdiag.model import NodeFacts

NAMESPACE = "ncdiag"
CONNECT_TIMEOUT_S = 5.0


class RayFleet(RemoteFleet):
    """`address` as `ray.init` takes it; empty: the cluster of this node."""

    def __init__(self, address: str = "") -> None:
        self._address = address or "auto"

    def collect(self, request: Request, progress: Progress) -> list[NodeFacts]:
        ray = connect(self._address)
        try:
            infos = node_infos(ray)
            answers = _run(ray, infos, pack(request), request.node_timeout_s, progress)
            nodes = [_facts_of(name, info, answers.get(name), request.node_timeout_s) for name, info in infos.items()]
        finally:
            ray.shutdown()
        for node in nodes:
            node.meta["ray"] = _told(infos[node.node])
        return nodes

    def run(
        self,
        packed: bytes,
        timeout_s: float,
        progress: Progress,
        *,
        only: Set[str] | None = None,
        together: bool = False,
    ) -> dict[str, Answer]:
        ray = connect(self._address)
        try:
            infos = {name: info for name, info in node_infos(ray).items() if only is None or name in only}
            return _run(ray, infos, packed, timeout_s, progress)
        finally:
            ray.shutdown()


def _run(ray: Any, infos: dict[str, Any], packed: bytes, timeout_s: float, progress: Progress) -> dict[str, Answer]:
    """The payload as one task a node that is alive, all at once; node -> answer."""
    alive = {name: info["NodeID"] for name, info in infos.items() if info["Alive"]}
    payload = ray.put(packed)
    waiting = {
        pinned(ray, node_id, _run_payload).remote(payload, loader(), timeout_s): name for name, node_id in alive.items()
    }
    answers = {name: Answer(None, "", "") for name in alive}
    ready, late = ray.wait(list(waiting), num_returns=len(waiting), timeout=timeout_s + 5) if waiting else ([], [])
    for reference in ready:
        name = waiting[reference]
        try:
            answers[name] = Answer(*ray.get(reference))
        except ray.exceptions.RayError as error:
            answers[name] = Answer(1, "", f"its Ray task failed: {first_line(error)[:300]}")
        progress(name, "")
    for reference in late:
        ray.cancel(reference, force=True)
    for name, stamp in _clocks(ray, {waiting[reference]: alive[waiting[reference]] for reference in ready}).items():
        answers[name] = answers[name]._replace(clock=stamp)
    return answers


def _clocks(ray: Any, nodes: dict[str, str]) -> dict[str, Stamp]:
    """Each node's clock, by a task in the worker that has just become free there."""
    called = {}
    for name, node_id in nodes.items():
        called[pinned(ray, node_id, _now).remote()] = (name, time.time())
    stamps: dict[str, Stamp] = {}
    left = list(called)
    while left:
        ready, left = ray.wait(left, num_returns=1, timeout=CONNECT_TIMEOUT_S)
        if not ready:
            break
        heard = time.time()
        name, when = called[ready[0]]
        try:
            stamps[name] = Stamp(when, ray.get(ready[0]), heard)
        except ray.exceptions.RayError:
            continue
    return stamps


def _facts_of(name: str, info: dict[str, Any], answer: Answer | None, timeout_s: float) -> NodeFacts:
    if answer is None:
        return NodeFacts(name, unreachable="Ray counts this node as dead")
    if answer.rc is None:
        return NodeFacts(name, unreachable=f"no answer through Ray within {timeout_s:g} s")
    return outcome(name, answer, timeout_s)


def connect(address: str) -> Any:
    """The `ray` module, connected. Raises FleetError with the way out."""
    try:
        import ray
    except ImportError as error:
        raise FleetError(
            "--nodes ray needs Ray in ncdiag's own environment: pip install 'ncdiag[ray]' with the cluster's version"
        ) from error
    _must_listen(address)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        ray.init(address=address, namespace=NAMESPACE, logging_level="error", log_to_driver=False)
    except Exception as error:
        raise FleetError(f"cannot reach the Ray cluster at {address}: {first_line(error)}") from error
    return ray


def first_line(error: Exception) -> str:
    """Of what Ray says; the kind of the error where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _must_listen(address: str) -> None:
    """Ray itself waits a minute and more for a head that is not there. Raises FleetError."""
    host, colon, port = address.rpartition(":")
    if not colon or "://" in address or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise FleetError(
            f"cannot reach the Ray cluster at {address}: {error.strerror or error}; try: ray status --address {address}"
        ) from error


def node_infos(ray: Any) -> dict[str, dict[str, Any]]:
    """Name -> what Ray tells of the node."""
    infos = ray.nodes()
    names = node_names(infos)
    return {names[info["NodeID"]]: info for info in infos if info["NodeID"] in names}


def node_names(infos: list[dict[str, Any]]) -> dict[str, str]:
    """Node id -> host name, with the address where two nodes have one name. Earlier lives of a node that came back are left out."""
    alive = {info["NodeManagerAddress"] for info in infos if info["Alive"]}
    infos = [info for info in infos if info["Alive"] or info["NodeManagerAddress"] not in alive]
    hosts = [info["NodeManagerHostname"] for info in infos]
    return {
        info["NodeID"]: host if hosts.count(host) == 1 else f"{host}@{info['NodeManagerAddress']}"
        for info, host in zip(infos, hosts, strict=True)
    }


def pinned(ray: Any, node_id: str, function: Any) -> Any:
    """`function` as a task that only this node runs and that asks for no resources."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return ray.remote(function).options(
        num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False)
    )


def _now() -> float:
    """On the node: its clock, seconds since 1970."""
    import time

    return time.time()


def _run_payload(payload: bytes, loader: str, timeout_s: float) -> tuple[int | None, str, str]:
    """On the node, in a Ray worker: `(exit status or None when its time was up, stdout, stderr)`."""
    import subprocess

    try:
        done = subprocess.run(
            [sys.executable, "-S", "-I", "-c", loader],
            input=payload,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, "", ""
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def _told(info: dict[str, Any]) -> dict[str, Any]:
    """What Ray itself says of a node: address, resources, whether it is alive."""
    return {
        "address": info["NodeManagerAddress"],
        "alive": info["Alive"],
        "resources": {name: value for name, value in info.get("Resources", {}).items() if not name.startswith("node:")},
    }
