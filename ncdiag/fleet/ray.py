"""The nodes of a Ray cluster: one task pinned to every node, zero CPUs asked, nothing to be installed there.

Works beside a running engine. The payload travels as bytes in the task's argument, and runs in an interpreter of its own.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

from ncdiag.fleet.base import Fleet, FleetError, Progress, Request
from ncdiag.fleet.remote import LOADER, outcome, pack
from ncdiag.model import NodeFacts

NAMESPACE = "ncdiag"
CONNECT_TIMEOUT_S = 5.0


class RayFleet(Fleet):
    """`address` as `ray.init` takes it; empty: the cluster of this node."""

    def __init__(self, address: str = "") -> None:
        self._address = address or "auto"

    def collect(self, request: Request, progress: Progress) -> list[NodeFacts]:
        ray = connect(self._address)
        try:
            return self._collect(ray, request, progress)
        finally:
            ray.shutdown()

    def _collect(self, ray: Any, request: Request, progress: Progress) -> list[NodeFacts]:
        names = node_names(ray.nodes())
        infos = {names[info["NodeID"]]: info for info in ray.nodes() if info["NodeID"] in names}
        nodes = {
            name: NodeFacts(name, unreachable="Ray counts this node as dead")
            for name, info in infos.items()
            if not info["Alive"]
        }
        payload = ray.put(pack(request))
        waiting = {}
        for info in infos.values():
            if info["Alive"]:
                task = pinned(ray, info["NodeID"], _run_payload)
                waiting[task.remote(payload, LOADER, request.node_timeout_s)] = names[info["NodeID"]]
        ready, late = ray.wait(list(waiting), num_returns=len(waiting), timeout=request.node_timeout_s + 5)
        for reference in ready:
            name = waiting[reference]
            try:
                rc, out, err = ray.get(reference)
                nodes[name] = outcome(name, rc, out, err, request.node_timeout_s)
            except ray.exceptions.RayError as error:
                nodes[name] = NodeFacts(
                    name, unreachable=f"its Ray task failed: {str(error).strip().splitlines()[0][:300]}"
                )
            progress(name, "")
        for reference in late:
            ray.cancel(reference, force=True)
            nodes[waiting[reference]] = NodeFacts(
                waiting[reference], unreachable=f"no answer through Ray within {request.node_timeout_s:g} s"
            )
        for node in nodes.values():
            node.meta["ray"] = _facts(infos[node.node])
        return [nodes[name] for name in names.values()]


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
        first = next((line for line in str(error).strip().splitlines() if line.strip()), type(error).__name__)
        raise FleetError(f"cannot reach the Ray cluster at {address}: {first.strip()}") from error
    return ray


def _must_listen(address: str) -> None:
    """Ray itself waits a minute and more for a head that is not there. Raises FleetError."""
    host, colon, port = address.rpartition(":")
    if not colon or "://" in address or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise FleetError(
            f"cannot reach the Ray cluster at {address}: {error.strerror or error}; try: ray status --address {address}"
        ) from error


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


def _facts(info: dict[str, Any]) -> dict[str, Any]:
    """What Ray itself says of a node: address, resources, whether it is alive."""
    return {
        "address": info["NodeManagerAddress"],
        "alive": info["Alive"],
        "resources": {name: value for name, value in info.get("Resources", {}).items() if not name.startswith("node:")},
    }
