"""`kubectl describe pod`, `get events` and `get pod -o yaml`: what ended a container, and whether a pod that could not be scheduled was scheduled in the end.

Source: kubelet's event texts (pkg/kubelet/kuberuntime, pkg/kubelet/prober) and the scheduler's, Kubernetes 1.20 to 1.34.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line

_CODE = re.compile(r"(?:Exit Code:\s+|exitCode\"?:\s*)137\b")
_KILLED = re.compile(r"failed (?P<probe>startup|liveness) probe, will be restarted")
_REFUSED = re.compile(r"(?:Startup|Liveness) probe failed.*(?:connection refused|no route to host|statuscode: 503)")
_WAITS = re.compile(
    r"FailedScheduling|Insufficient nvidia\.com/gpu|ImagePullBackOff|ErrImagePull|CrashLoopBackOff|Failed to pull image|^\S+ +\d+/\d+ +(?:Pending|Init:\S+)(?= )"
)
_RUNS = re.compile(
    r"Successfully assigned|Successfully pulled image|Started container|^\s*State:\s+Running|^Status:\s+Running"
)


@dataclass
class _Pod:
    """What one source says of a pod."""

    code: Line | None = None
    memory: bool = False
    killed: Line | None = None
    probe: str = ""
    refused: Line | None = None
    waits: Line | None = None


class Pods:
    """One pod a source, mostly."""

    triggers = (
        "Exit Code:",
        "exitCode",
        "OOMKilled",
        "probe, will be restarted",
        "probe failed",
        "FailedScheduling",
        "Insufficient nvidia.com/gpu",
        "ImagePullBackOff",
        "ErrImagePull",
        "CrashLoopBackOff",
        "Failed to pull image",
        "/1     Pending",
        " Init:",
        "Successfully assigned",
        "Successfully pulled image",
        "Started container",
        "State:          Running",
    )

    def __init__(self) -> None:
        self._pods: dict[str, _Pod] = {}
        self.kills: set[tuple[str, int]] = set()
        """`(source, line)` of the events with which the kubelet says that a probe made it end a container."""

    def take(self, line: Line) -> bool:
        pod, text = self._pods.setdefault(line.source, _Pod()), line.text
        killed = _KILLED.search(text)
        pod.memory = pod.memory or "OOMKilled" in text
        if killed:
            pod.killed, pod.probe = line, killed["probe"]
            self.kills.add((line.source, line.number))
        elif _REFUSED.search(text):
            pod.refused = line
        elif _CODE.search(text):
            pod.code = line
        elif _WAITS.search(text):
            pod.waits = line
        elif _RUNS.search(text) and pod.waits is not None and "CrashLoopBackOff" not in pod.waits.text:
            pod.waits = None
        return False

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        for pod in self._pods.values():
            if pod.killed is not None and not pod.memory:
                yield self._probed(pod, pod.killed)
            else:
                yield from self._ended(pod)

    def _probed(self, pod: _Pod, killed: Line) -> Signal:
        """The kubelet ended it: exit 137 says no more than that."""
        evidence = [line.evidence() for line in (killed, pod.refused, pod.code) if line is not None]
        if pod.probe == "startup" or pod.refused is not None:
            return Signal(
                "slow-not-hung",
                Says.STRONG,
                f"the kubelet kills the container because its {pod.probe} probe fails while it still starts; exit 137 comes from that",
                evidence,
                candidates=("storage-slow",),
                order=killed.order,
                remedy="a startupProbe whose failureThreshold x periodSeconds is longer than the start takes (or faster storage for the weights)",
            )
        return Signal(
            "",
            Says.SYMPTOM,
            "the kubelet kills the container because it does not answer its liveness probe any more",
            evidence,
            candidates=("slow-not-hung", "rank-stuck-outside-collective", "engine-exception"),
            order=killed.order,
        )

    def _ended(self, pod: _Pod) -> Iterator[Signal]:
        if pod.code is not None and not pod.memory:
            yield Signal(
                "host-memory-oom",
                Says.STRONG,
                "a container was killed with 137 (SIGKILL), usually for its memory",
                [pod.code.evidence()],
                candidates=("rank-died",),
                order=pod.code.order,
            )
        if pod.waits is not None:
            what = _WAITS.search(pod.waits.text)
            yield Signal(
                "rank-missing",
                Says.HINT,
                f"a pod of the job does not run ({what[0] if what else 'waits'})",
                [pod.waits.evidence()],
                order=pod.waits.order,
            )
