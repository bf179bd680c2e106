"""GPUs x pods against TP x PP (x DP), and where the ranks land.

Source: vLLM, "Parallelism and scaling"; --nnodes and --node-rank of its multi-node mode.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ncdiag.manifests.scene import Scene
from ncdiag.model import Finding, fail, ok, skip, unknown, warn
from ncdiag.nodeset import counted


def sizes(scene: Scene) -> Iterator[Finding]:
    work = scene.workload
    path = _path(scene)
    if work.engine is None and not work.sizes and not work.model_name:
        yield scene.say(skip, "no `vllm serve` in it: the parallel sizes cannot be compared with the GPUs", path)
        return
    if any(role.claims_devices for role in work.roles):
        yield scene.say(skip, "GPUs come by resource claims, which cannot be counted here", path)
        return
    wanted, pods = work.wanted, [role.pods for role in work.roles]
    if wanted is None or None in pods:
        what = "TP, PP or DP" if wanted is None else "the number of pods"
        yield scene.say(
            unknown,
            f"{what} is a variable or not told: the GPUs cannot be compared",
            path,
            cause="parallel-size-mismatch",
            remedy="write the numbers out, or lint what the template renders",
        )
        return
    there = sum((role.pods or 0) * role.gpus for role in work.roles)
    shape = " x ".join(
        f"{short} {work.size(name)}"
        for short, name in (
            ("TP", "--tensor-parallel-size"),
            ("PP", "--pipeline-parallel-size"),
            ("DP", "--data-parallel-size"),
        )
        if work.size(name) != 1
    )
    pods_shown = " + ".join(f"{role.pods} x {role.gpus}" for role in work.roles if role.gpus) or "0"
    where: dict[str, Any] = {"observed": there, "expected": wanted, "cause": "parallel-size-mismatch"}
    if there < wanted:
        yield scene.say(
            fail,
            f"{shape or 'the engine'} wants {counted(wanted, 'GPU')}, its pods have {pods_shown} = {there}",
            path,
            remedy="make pods x GPUs equal to TP x PP (x DP)",
            **where,
        )
    elif work.document.kind.startswith("Ray") and there % wanted == 0:
        yield scene.say(
            ok, f"{shape or 'one GPU'} on {pods_shown} = {counted(there, 'GPU')}: room for {there // wanted}", path
        )
    elif there > wanted:
        spare = there - wanted
        yield scene.say(
            warn,
            f"{shape or 'the engine'} uses {counted(wanted, 'GPU')}, its pods have {pods_shown} = {there}: {spare} stand idle",
            path,
            remedy="raise a size, or ask for fewer GPUs",
            **where,
        )
    else:
        yield scene.say(ok, f"{shape or 'one GPU'} on {pods_shown} = {counted(there, 'GPU')}", path)


def _path(scene: Scene) -> tuple[Any, ...]:
    engines = [one for role in scene.workload.roles for one in role.containers if one.engine]
    if engines:
        return (*engines[0].path, "args" if "args" in engines[0].data else "command")
    return ("spec", "serveConfigV2")


def layout(scene: Scene) -> Iterator[Finding]:
    """TP inside a node; as many nodes as there are pods."""
    work = scene.workload
    tp, pp = work.size("--tensor-parallel-size"), work.size("--pipeline-parallel-size")
    per_pod = max((role.gpus for role in work.roles), default=0)
    path = _path(scene)
    if tp and per_pod and tp > per_pod and work.several_nodes:
        yield scene.say(
            warn, f"TP {tp} over pods of {counted(per_pod, 'GPU')}: every layer's all-reduce crosses the network", path, observed=tp, expected=per_pod, cause="rank-layout-wrong",
            remedy=f"TP {per_pod} and PP {-(-tp * (pp or 1) // per_pod)}, unless the nodes share an NVLink domain",
        )  # fmt: skip
    nodes = work.engine.number("--nnodes") if work.engine else None
    pods = None if any(role.pods is None for role in work.roles) else sum(role.pods or 0 for role in work.roles)
    if nodes is not None and pods is not None and nodes != pods:
        yield scene.say(
            fail,
            f"--nnodes {nodes}, and {counted(pods, 'pod')}",
            path,
            observed=pods,
            expected=nodes,
            cause="rank-missing" if pods < nodes else "rank-layout-wrong",
            remedy=f"make both {max(nodes, pods)}",
        )
    yield from _ranks(scene)


def _ranks(scene: Scene) -> Iterator[Finding]:
    """A template that several pods share must not write one rank for all of them."""
    for role, container in scene.each():
        rank = container.engines[0].options.get("--node-rank") if len(container.engines) == 1 else None
        if rank is not None and rank.isdecimal() and role.pods is not None and role.pods > 1:
            yield scene.say(
                fail, f"all {role.pods} pods of this template start with --node-rank {rank}", container.path, role=role, container=container, observed=rank, expected="one for each pod",
                cause="rank-layout-wrong", remedy="take it from the pod's index: fieldRef metadata.labels['apps.kubernetes.io/pod-index'] (or leaderworkerset.sigs.k8s.io/worker-index)",
            )  # fmt: skip
