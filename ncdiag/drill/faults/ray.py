"""Ray's head, nodes and ports."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from ..acts import firewall
from ..bench import Bench
from .base import HIGH, fault


@fault("ray", "second Ray node missing", "ray-resources-infeasible", stages=("ray-placement",), quick=True)
def ray_too_few(made: Bench) -> None:
    made.skip.add("b")


@fault("ray", "Ray head not reachable", "ray-gcs-unreachable", quick=True)
def ray_head_gone(made: Bench) -> None:
    made.env["a"]["RAY_ADDRESS"] = f"{made.hosts['b'].address}:6399"
    made.skip |= {"a", "b"}


@fault("ray", "high ports blocked b to a", "bootstrap-blocked-firewall", node="b", quick=True)
def ray_ports(made: Bench) -> None:
    made.before.append(firewall("b", f'oifname "eth0" {HIGH}'))


@fault("ray", "the plug-in is missing on b", "version-mismatch", "engine-exception", "ray-driver-without-gpu", node="b")
def ray_plugin_missing(made: Bench) -> None:
    made.env["b"]["PYTHONPATH"] = None


@fault("ray", "worker node lost while its rank starts: all of it ends at once", "ray-node-lost", node="b", quick=True)
def ray_node_lost(made: Bench) -> None:
    made.acts.append(_lose_node)


def _lose_node(made: Bench) -> None:
    if _remote_worker(made):
        for pid in made.hosts["b"].run("ip", "netns", "pids", made.hosts["b"].netns).stdout.split():
            if int(pid) != made.hosts["b"].holder.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        made.acted_at = time.time()


@fault("ray", "rank on b killed (SIGKILL) while it starts", "rank-died", node="b", name="killed")
def ray_killed(made: Bench) -> None:
    made.acts.append(_kill_ray_worker)


def _kill_ray_worker(made: Bench) -> None:
    if pid := _remote_worker(made):
        os.kill(pid, signal.SIGKILL)
        made.acted_at = time.time()


def _remote_worker(made: Bench) -> int:
    """The worker on b, a second after its rank began to start; 0 when it is over. Its lines come too late through Ray."""
    host = made.hosts["b"]
    while not made.over:
        for pid in host.run("ip", "netns", "pids", host.netns).stdout.split():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::RayWorkerProc.initialize_worker"):
                    time.sleep(1.0)
                    return int(pid)
        time.sleep(0.1)
    return 0


@fault("ray", "rank on b stopped (SIGSTOP)", "rank-stopped", node="b", quick=True)
def ray_stopped(made: Bench) -> None:
    made.acts.append(_stop_ray_worker)


def _stop_ray_worker(made: Bench) -> None:
    if pid := _remote_worker(made):
        os.kill(pid, signal.SIGSTOP)
        made.acted_at = time.time()
