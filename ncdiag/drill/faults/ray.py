"""Ray's head, nodes and ports."""

from __future__ import annotations

import os
import re
import signal
import time

from ..bench import Bench, firewall
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


@fault("ray", "worker node lost while it loads", "ray-node-lost", "rank-died", node="b")
def ray_node_lost(made: Bench) -> None:
    made.acts.append(_kill_ray_worker)


def _kill_ray_worker(made: Bench) -> None:
    while not (
        found := re.search(
            r"\(RayWorkerProc pid=(\d+), ip=10\.77\.0\.2\)[^\n]*(?:Starting to load|distributed_init)", made.text("a")
        )
    ):
        if made.over:
            return
        time.sleep(0.02)
    os.kill(int(found[1]), signal.SIGKILL)
    made.acted_at = time.time()


@fault("ray", "rank on b stopped (SIGSTOP)", "rank-stopped", node="b", quick=True)
def ray_stopped(made: Bench) -> None:
    made.acts.append(_stop_ray_worker)


def _stop_ray_worker(made: Bench) -> None:
    while not (found := re.search(r"\(RayWorkerProc pid=(\d+), ip=10\.77\.0\.2\)", made.text("a"))):
        if made.over:
            return
        time.sleep(0.02)
    time.sleep(1.0)
    os.kill(int(found[1]), signal.SIGSTOP)
    made.acted_at = time.time()
