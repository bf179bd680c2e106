"""Start-up: how long a probe leaves the model to load, in which order the pods come, and what a restart does.

Source: Kubernetes, "Configure Liveness, Readiness and Startup Probes" (periodSeconds 10, failureThreshold 3 by default), "StatefulSet"
(podManagementPolicy OrderedReady by default); LeaderWorkerSet API (startupPolicy, restartPolicy).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ncdiag.manifests.document import mapping
from ncdiag.manifests.rules.network import HEALTH
from ncdiag.manifests.scene import Scene
from ncdiag.manifests.workload import Container, Role
from ncdiag.model import Finding, fail, ok, skip, unknown, warn

BASE_S = 240
"""Start of processes, profile run, compilation and CUDA graphs, on top of reading the weights (rule of thumb)."""
SLOW_BYTES_S = 1e9
"""Shared storage that several pods read at once."""
FAST_BYTES_S = 10e9
"""Local NVMe, or page cache: less than this needs is too little everywhere."""
PLENTY_S = 1800


def budget_s(probe: dict[str, Any]) -> float:
    """Seconds after which the kubelet kills the container."""
    period, failures, delay = (
        _number(probe, key, default)
        for key, default in (("periodSeconds", 10), ("failureThreshold", 3), ("initialDelaySeconds", 0))
    )
    return delay + period * failures


def _number(probe: dict[str, Any], key: str, default: int) -> float:
    value = probe.get(key, default)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else float(default)


def probe_budget(scene: Scene) -> Iterator[Finding]:
    for role, container in scene.each():
        if container.engine is None and not role.gpus:
            continue
        startup, liveness = mapping(container.data.get("startupProbe")), mapping(container.data.get("livenessProbe"))
        kind, probe = ("startupProbe", startup) if startup else ("livenessProbe", liveness)
        if not probe:
            yield scene.say(ok, "no probe ends it while it loads", container.path, role=role, container=container)
            continue
        yield _judged(scene, role, container, kind, budget_s(probe))


def _judged(scene: Scene, role: Role, container: Container, kind: str, budget: float) -> Finding:
    path = (*container.path, kind)
    weights, source = scene.weights
    where: dict[str, Any] = {"role": role, "container": container}
    trouble: dict[str, Any] = {"cause": "slow-load-peer-timeout", **where}
    advice = "startupProbe with failureThreshold x periodSeconds above {need:.0f} s; livenessProbe only counts after it"
    if weights is None:
        if budget >= PLENTY_S:
            return scene.say(ok, f"{kind} leaves {budget:.0f} s to start", path, **where)
        if budget < BASE_S:
            return scene.say(
                warn,
                f"{kind} ends it after {budget:.0f} s; an engine of any size can take longer to start",
                path,
                observed=budget,
                expected=BASE_S,
                remedy=advice.format(need=PLENTY_S),
                **trouble,
            )
        return scene.say(
            unknown,
            f"{kind} leaves {budget:.0f} s; how large the model is cannot be told",
            path,
            remedy="give --weights-gib",
            **where,
        )
    size = f"{weights / 2**30:.0f} GiB of weights (by {source})"
    need, least = BASE_S + weights / SLOW_BYTES_S, BASE_S / 4 + weights / FAST_BYTES_S
    numbers: dict[str, Any] = {"observed": budget, "expected": round(need)}
    if budget < least:
        return scene.say(
            fail,
            f"{kind} ends it after {budget:.0f} s; {size} take {least:.0f} s even from fast local disks",
            path,
            remedy=advice.format(need=need),
            **numbers,
            **trouble,
        )
    if budget < need:
        return scene.say(
            warn,
            f"{kind} ends it after {budget:.0f} s; {size} take about {need:.0f} s from shared storage at 1 GB/s",
            path,
            remedy=advice.format(need=need),
            **numbers,
            **trouble,
        )
    return scene.say(ok, f"{kind} leaves {budget:.0f} s for {size}", path, **where)


def worker_probes(scene: Scene) -> Iterator[Finding]:
    """A node without an API server never answers the API server's health check."""
    for role, container in scene.each():
        engine = container.engine
        headless = (engine is not None and "--headless" in engine.options) or (
            engine is None and container.ray is not None and "--head" not in container.ray
        )
        if not headless or (role.pods or 0) == 0 or _shared(scene, role):
            continue
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = mapping(mapping(container.data.get(kind)).get("httpGet"))
            if str(probe.get("path", "")).startswith(HEALTH):
                yield scene.say(
                    fail, f"{kind} asks {probe.get('path')} of a node that serves nothing (headless or a Ray worker)", (*container.path, kind), role=role, container=container,
                    cause="rank-missing", remedy=f"take {kind} out of this template",
                )  # fmt: skip


def _shared(scene: Scene, role: Role) -> bool:
    """One template for head and workers (a script decides)."""
    return (
        scene.workload.document.kind in ("StatefulSet", "Deployment", "Job", "ReplicaSet")
        or sum(one.path == role.path for one in scene.workload.roles) > 1
    )


def order(scene: Scene) -> Iterator[Finding]:
    """Nobody waits for a node that is only started when the waiting has ended."""
    work = scene.workload
    spec = mapping(work.document.data.get("spec"))
    kind = work.document.kind
    if not work.several_nodes:
        return
    gated = [
        container
        for _, container in scene.each()
        if container.data.get("readinessProbe") or container.data.get("startupProbe")
    ]
    if kind == "StatefulSet":
        parallel = spec.get("podManagementPolicy") == "Parallel"
        path: tuple[Any, ...] = ("spec", "podManagementPolicy")
        if not parallel and gated:
            yield scene.say(
                fail, "its pods are started one after the other, each when the one before is ready; the first is ready only when all are there", path,
                observed=spec.get("podManagementPolicy", "OrderedReady"), expected="Parallel", cause="rank-missing", remedy="podManagementPolicy: Parallel",
            )  # fmt: skip
        elif not parallel:
            yield scene.say(
                warn,
                "its pods are started one after the other",
                path,
                observed=spec.get("podManagementPolicy", "OrderedReady"),
                expected="Parallel",
                cause="rank-missing",
                remedy="podManagementPolicy: Parallel",
            )
        else:
            yield scene.say(ok, "its pods are started together", path)
    elif kind == "LeaderWorkerSet":
        yield from _leader_worker(scene, spec, gated)
    elif kind in ("Deployment", "ReplicaSet"):
        yield scene.say(
            warn, "one engine over the pods of a Deployment: they have no stable names or numbers, and are replaced one by one", ("kind",), cause="rank-layout-wrong",
            remedy="a StatefulSet with podManagementPolicy: Parallel, or a LeaderWorkerSet",
        )  # fmt: skip
    else:
        yield scene.say(skip, f"a {kind} starts its pods together", ("kind",))


def _leader_worker(scene: Scene, spec: dict[str, Any], gated: list[Container]) -> Iterator[Finding]:
    leader = scene.workload.roles[0].main
    waits = leader is not None and leader in gated
    if spec.get("startupPolicy") == "LeaderReady" and waits:
        yield scene.say(
            fail, "workers are started when the leader is ready; the leader is ready only when they are there", ("spec", "startupPolicy"), observed="LeaderReady",
            expected="LeaderCreated", cause="rank-missing", remedy="startupPolicy: LeaderCreated",
        )  # fmt: skip
    else:
        yield scene.say(ok, "leader and workers are started together", ("spec", "startupPolicy"))
    policy = mapping(spec.get("leaderWorkerTemplate")).get("restartPolicy", "RecreateGroupOnPodRestart")
    path = ("spec", "leaderWorkerTemplate", "restartPolicy")
    if policy == "None":
        yield scene.say(
            warn, "a pod that restarts comes back alone, and the others of its engine hang", path, observed=policy, expected="RecreateGroupOnPodRestart", cause="rank-missing",
            remedy="restartPolicy: RecreateGroupOnPodRestart",
        )  # fmt: skip
