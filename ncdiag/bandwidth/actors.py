"""Agents under Ray: one actor for every GPU, in a placement group, so that Ray counts the GPUs as taken meanwhile.

The actor starts the agent in its own interpreter, which is the engine's, and passes bytes to and fro. Actor, agent and ranks end with the driver.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

from ncdiag.bandwidth.limit import Limit
from ncdiag.bandwidth.reach import LOADER, Line, Way, sources
from ncdiag.fleet.base import FleetError
from ncdiag.fleet.ray import connect, first_line, node_names
from ncdiag.fleet.sessions import Sessions
from ncdiag.nodeset import counted

READY_S = 30.0
"""How long Ray may take to find room for the placement group."""


class Pump:
    """Runs in Ray, beside the agent. Needs nothing of ncdiag there."""

    def __init__(self, loader: str, environment: dict[str, str], python: str | None) -> None:
        import os
        import subprocess
        import sys

        self._process = subprocess.Popen(
            [python or sys.executable, "-u", "-c", loader],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )

    def send(self, data: bytes) -> None:
        try:
            self._process.stdin.write(data)  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]
        except (BrokenPipeError, ValueError):
            pass

    def read(self) -> bytes:
        """Waits for the next bytes; empty when the agent is gone."""
        return self._process.stdout.read1(1 << 18)  # type: ignore[union-attr]

    def why(self) -> str:
        lines = (self._process.stderr.read() or b"").decode("utf-8", "replace").strip().splitlines()  # type: ignore[union-attr]
        return lines[-1][:300] if lines else f"the agent ended with status {self._process.wait(5)}"

    def stop(self) -> None:
        import contextlib
        import subprocess

        with contextlib.suppress(
            OSError, ValueError
        ):  # what it had not read yet, or another thread of this actor writes
            self._process.stdin.close()  # type: ignore[union-attr]
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class RayLine:
    """A pipe that a thread fills with what the actor reads, so that it can be waited for like any other."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor
        self._reader, self._writer = os.pipe()
        self.send(sources())
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            while data := self._ray.get(self._actor.read.remote()):
                while data:
                    data = data[os.write(self._writer, data) :]
        except Exception:  # the actor is gone, or Ray is: the end of the pipe says so
            pass
        finally:
            with contextlib.suppress(OSError):
                os.close(self._writer)

    def fileno(self) -> int:
        return self._reader

    def read(self) -> bytes:
        return os.read(self._reader, 1 << 18)

    def send(self, data: bytes) -> None:
        self._actor.send.remote(data)

    def why(self) -> str:
        try:
            return str(self._ray.get(self._actor.why.remote(), timeout=5))
        except Exception as error:  # whatever Ray says is the reason
            return f"its Ray actor is gone: {first_line(error)[:200]}"

    def release(self) -> None:
        self._actor.stop.remote()

    def ended(self) -> bool:
        return True  # closing it waits

    def close(self, sessions: Sessions) -> None:
        with contextlib.suppress(Exception):
            self._ray.get(self._actor.stop.remote(), timeout=8)
        with contextlib.suppress(Exception):
            self._ray.kill(self._actor)
        self._thread.join(2)
        os.close(self._reader)


def ray_ways(address: str, python: str | None, environment: Mapping[str, str], limit: Limit) -> list[Way]:
    """One way for every GPU (or node, where there are none) of the cluster. Raises FleetError when Ray has given the GPUs away."""
    ray = connect(address or "auto")
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    alive = [info for info in ray.nodes() if info["Alive"]]
    names = node_names(ray.nodes())
    gpus = {info["NodeID"]: int(info["Resources"].get("GPU", 0)) for info in alive}
    bundles: list[dict[str, float]] = [{"GPU": 1} for info in alive for _ in range(gpus[info["NodeID"]])]
    if not bundles:
        bundles = [{"CPU": 0.01} for _ in alive]
    group = _placement(ray, bundles, limit.left(READY_S), spread=not any(gpus.values()))
    addresses = {info["NodeID"]: info["NodeManagerAddress"] for info in alive}
    carried = {
        name: value for name, value in environment.items() if name != "CUDA_VISIBLE_DEVICES"
    }  # that is Ray's to say
    where = ray.util.placement_group_table(group)["bundles_to_node_id"]
    order = sorted(range(len(bundles)), key=lambda index: (names[where[index]], index))

    def way(index: int) -> Way:
        def start() -> Line:
            from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

            strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
            need = {"num_gpus": 1} if "GPU" in bundles[index] else {}
            actor = (
                ray.remote(Pump)
                .options(num_cpus=0, max_concurrency=4, scheduling_strategy=strategy, **need)
                .remote(LOADER, {**carried, "NCDIAG_ADDRESS": addresses[where[index]]}, python)
            )
            return RayLine(ray, actor)

        return Way(names[where[index]], start)

    return [way(index) for index in order]


def _placement(ray: Any, bundles: list[dict[str, float]], within_s: float, spread: bool) -> Any:
    from ray.util.placement_group import placement_group, remove_placement_group

    group = placement_group(bundles, strategy="STRICT_SPREAD" if spread else "PACK")
    try:
        ray.get(group.ready(), timeout=within_s)
    except ray.exceptions.GetTimeoutError:
        remove_placement_group(group)
        free = ray.available_resources().get("GPU", 0)
        raise FleetError(
            f"--nodes ray: Ray has {free:g} of {counted(len(bundles), 'GPU')} free, the others are held by placement groups or actors; "
            "stop the engine first (ray list placement-groups), or measure beside it with --nodes ssh:… --share"
        ) from None
    return group
