"""What Ray does explains what a process says: no GPU, no driver, a head that was not there yet, a node taken away."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ncdiag.explain import Says, Signal
from ncdiag.logs.alive import harmless
from ncdiag.logs.kinds import IDLE, NO_GPU
from ncdiag.logs.readers import Readers
from ncdiag.logs.rules.ray import SEES_NONE


def no_gpu(signals: Sequence[Signal], ray: bool) -> None:
    """Under Ray a process without a GPU was mostly scheduled without one; HIP has another usual reason."""
    for signal in signals:
        if ray and signal.kind == NO_GPU and "HIP" not in signal.evidence[0].text:
            signal.cause, signal.candidates = "ray-driver-without-gpu", ("visible-devices-conflict", *signal.candidates)
            signal.remedy = (
                "give the Ray task or job num_gpus; else look at CUDA_VISIBLE_DEVICES and at --gpus of the container"
            )


_NO_DRIVER = re.compile(r"Failed to infer device type|No CUDA runtime is found|Found no NVIDIA driver on your system")


def no_driver(signals: Sequence[Signal], readers: Readers, ray: bool) -> None:
    """Under Ray a process that finds no driver is mostly one that was placed without a GPU: it was given none, or the cluster has some elsewhere."""
    shown = [line for line in (readers.visible.none, readers.ray_status.gpus()) if line is not None]
    if not ray or not shown:
        return
    for signal in signals:
        if signal.cause == "driver-library-missing" and _NO_DRIVER.search(signal.evidence[0].text):
            signal.cause, signal.says = "ray-driver-without-gpu", Says.STRONG
            signal.candidates = ("driver-library-missing", "visible-devices-conflict")
            signal.summary = (
                f"{SEES_NONE}, although it runs under Ray: it was placed where there is none, or without one"
            )
            signal.evidence = [*signal.evidence, *[line.evidence() for line in shown]]
            signal.remedy = "start the program where a GPU is: `ray job submit --entrypoint-num-gpus 1`, or build the engine in a task or actor with num_gpus; then look at the driver of that node"


def nobody_holds(signals: Sequence[Signal], readers: Readers) -> None:
    """A node of Ray without a free GPU in a cluster whose GPUs nobody uses: that node gives Ray none, whatever type it names."""
    unused = readers.ray_status.unused()
    if unused is None:
        return
    for signal in signals:
        if signal.cause == "ray-placement-group-leaked" and "no GPU available" in signal.evidence[0].text:
            signal.cause, signal.candidates = "ray-driver-without-gpu", ("ray-placement-group-leaked",)
            signal.summary = (
                "the engine's driver runs on a Ray node without a GPU, and nobody uses those of the cluster"
            )
            signal.evidence = [*signal.evidence, unused.evidence()]
            signal.remedy = "start the driver on a node that gives Ray its GPUs; see how this one's `ray start` was called (--num-gpus, CUDA_VISIBLE_DEVICES)"


def room_enough(signals: Sequence[Signal], readers: Readers) -> None:
    """Ray has free what its demands ask for: that they wait has another reason."""
    if not readers.ray_status.enough():
        return
    for signal in signals:
        if (
            signal.cause == "ray-resources-infeasible"
            and signal.says is Says.STRONG
            and "pending" in signal.evidence[0].text
        ):
            signal.cause, signal.says = "", Says.SYMPTOM
            signal.summary = "demands of Ray wait, although the cluster has enough that nobody uses"
            signal.candidates = ("node-ip-wrong-interface", "ray-resources-infeasible", "disk-full")


def head_reached(signals: Sequence[Signal], readers: Readers) -> None:
    """A head that was not there yet and was reached a moment later."""
    for signal in signals:
        if signal.cause == "ray-gcs-unreachable" and signal.evidence:
            came = readers.starts.ray_up.get(signal.evidence[0].source, -1.0)
            if came > max(signal.order, signal.until):
                harmless(signal)


_NO_RAYLET, _WORKER = "cannot find a local Raylet", "(RayWorker"


def raylet_found(signals: Sequence[Signal]) -> None:
    """Ray's workers run where it had found no raylet at first: it has one, under another of the node's addresses."""
    works = any(_WORKER in item.text for signal in signals for item in signal.evidence)
    for signal in signals:
        if works and signal.evidence and _NO_RAYLET in signal.evidence[0].text:
            harmless(signal)


def dead_by_word(signals: Sequence[Signal]) -> None:
    """A node that the head had given up does not reach it any more; one that the autoscaler took away when idle is no loss."""
    given_up = any(signal.cause == "ray-node-lost" and signal.says is Says.NAMED for signal in signals)
    taken = min((signal.order for signal in signals if signal.kind == IDLE), default=None)
    for signal in signals:
        if given_up and signal.cause == "ray-gcs-unreachable":
            signal.says = min(signal.says, Says.HINT)
        elif taken is not None and signal.cause == "ray-node-lost" and signal.order > taken:
            harmless(signal)
