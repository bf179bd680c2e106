"""The objects of each form, as plain data.

Source: vLLM, "Parallelism and scaling" (--nnodes, --node-rank, --master-addr, --headless; --data-parallel-…); LeaderWorkerSet API (the
variables LWS_LEADER_ADDRESS and LWS_WORKER_INDEX); Kubernetes, "StatefulSet" (label apps.kubernetes.io/pod-index, 1.28 and newer).
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncdiag.manifests.planned import RenderError, model_of, options_of
from ncdiag.manifests.rules.start import BASE_S, PLENTY_S, SLOW_BYTES_S

PORT = 8000
MASTER_PORT = 29501
RPC_PORT = 29550
MOUNT = "/models"
PERIOD_S = 10
HEALTHY = f'test "$NODE_RANK" != 0 || python3 -c \'import urllib.request as r; r.urlopen("http://127.0.0.1:{PORT}/health", timeout=8)\''
"""The nodes behind the first serve nothing that could be asked."""


@dataclass(frozen=True)
class Wanted:
    """What the plan does not say."""

    name: str = "vllm"
    form: str = "auto"
    image: str = "vllm/vllm-openai:latest"
    claim: str = "models"
    """The persistent volume claim that holds the model; several nodes must be able to mount it."""
    model: str = ""
    """Path inside the claim; empty: the name of the planned folder."""
    interface: str = ""
    gpu: str = "nvidia.com/gpu"
    rdma: str = "rdma/hca"
    """Resource name of the RDMA device plugin; empty: none."""
    selector: Mapping[str, str] = field(default_factory=lambda: {"nvidia.com/gpu.present": "true"})
    shm_gib: int = 16


@dataclass(frozen=True)
class Shape:
    """Nodes of one engine, and engines."""

    nodes: int
    gpus: int
    """Of one pod."""
    local: int
    """Data-parallel ranks of one node; 0: data parallelism is not spread over nodes."""
    copies: int


class Skeleton:
    """Each form is a method, its documents in the order in which they are applied."""

    def __init__(self, plan: Mapping[str, Any], wanted: Wanted, shape: Shape) -> None:
        self._plan, self._wanted, self._shape = plan, wanted, shape
        self._options = options_of(plan["commands"])
        planned = model_of(plan["commands"])
        self._model = f"{MOUNT}/{(wanted.model or planned.rstrip('/').rpartition('/')[2] or 'model').lstrip('/')}"
        self._labels = {"app": wanted.name}

    def deployment(self) -> list[dict[str, Any]]:
        container = self._container(["vllm", "serve", self._model, *self._options, "--port", str(PORT)], serves=True)
        spec = {
            "replicas": self._shape.copies,
            "selector": {"matchLabels": self._labels},
            "template": self._template(container, self._labels, network=False),
        }
        return [
            _object("apps/v1", "Deployment", self._wanted.name, spec),
            self._service(self._wanted.name, self._labels),
        ]

    def leader_worker_set(self) -> list[dict[str, Any]]:
        name = self._wanted.name
        leader, worker = {**self._labels, "role": "leader"}, {**self._labels, "role": "worker"}
        argv = [*self._common("$(LWS_LEADER_ADDRESS)"), "--port", str(PORT)]
        follow = ["sh", "-c", f"exec {self._follow_line('LWS_LEADER_ADDRESS', 'LWS_WORKER_INDEX')}"]
        spec = {
            "replicas": self._shape.copies,
            "startupPolicy": "LeaderCreated",
            "leaderWorkerTemplate": {
                "size": self._shape.nodes,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": self._template(self._container([*argv, *self._first_rank()], serves=True), leader),
                "workerTemplate": self._template(self._container(follow, serves=False), worker),
            },
        }
        return [_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, spec), self._service(name, leader)]

    def stateful_set(self) -> list[dict[str, Any]]:
        if self._shape.copies > 1:
            raise RenderError(
                f"a StatefulSet holds one engine, the plan has {self._shape.copies}; take --form lws, or plan for the nodes of one engine"
            )
        name = self._wanted.name
        nodes = f"{name}-nodes"
        head = f"{name}-0.{nodes}"
        lead = shlex.join([*self._common(head), "--port", str(PORT), *self._first_rank()])
        follow = self._follow_line(head, "NODE_RANK")
        script = f'if [ "$NODE_RANK" = 0 ]; then\n  exec {lead}\nfi\nexec {follow}\n'
        container = self._container(["sh", "-c", script], serves=False)
        container["env"].insert(
            0,
            {
                "name": "NODE_RANK",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}},
            },
        )
        container["ports"] = [{"name": "http", "containerPort": PORT}]
        container["readinessProbe"] = {
            "exec": {"command": ["sh", "-c", HEALTHY]},
            "periodSeconds": PERIOD_S,
            "timeoutSeconds": 10,
        }
        spec = {
            "serviceName": nodes,
            "replicas": self._shape.nodes,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": self._labels},
            "template": self._template(container, self._labels),
        }
        headless = _object(
            "v1", "Service", nodes, {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": self._labels}
        )
        first = {**self._labels, "apps.kubernetes.io/pod-index": "0"}
        return [headless, _object("apps/v1", "StatefulSet", name, spec), self._service(name, first)]

    def _common(self, head: str) -> list[str]:
        argv = ["vllm", "serve", self._model, *self._options]
        if self._shape.local:
            return [
                *argv,
                "--data-parallel-size-local",
                str(self._shape.local),
                "--data-parallel-address",
                head,
                "--data-parallel-rpc-port",
                str(RPC_PORT),
            ]
        return [
            *argv,
            "--distributed-executor-backend",
            "mp",
            "--nnodes",
            str(self._shape.nodes),
            "--master-addr",
            head,
            "--master-port",
            str(MASTER_PORT),
        ]

    def _first_rank(self) -> list[str]:
        return [] if self._shape.local else ["--node-rank", "0"]

    def _follow_line(self, head: str, rank: str) -> str:
        """What the other nodes run, for a shell. `head`: a name, or a variable in capitals; `rank`: a variable."""
        line = " ".join(
            f'"${head}"' if word == head and head.isupper() else shlex.quote(word)
            for word in [*self._common(head), "--headless"]
        )
        return (
            f"{line} --data-parallel-start-rank $(({rank} * {self._shape.local}))"
            if self._shape.local
            else f'{line} --node-rank "${rank}"'
        )

    def _container(self, argv: Sequence[str], serves: bool) -> dict[str, Any]:
        several = self._shape.nodes > 1
        limits: dict[str, Any] = {self._wanted.gpu: self._shape.gpus}
        if several and self._wanted.rdma:
            limits[self._wanted.rdma] = 1
        container: dict[str, Any] = {
            "name": "vllm",
            "image": self._wanted.image,
            "command": list(argv),
            "env": self._environment() if several else [],
        }
        if several and self._wanted.rdma:
            container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
        container["resources"] = {"limits": limits}
        if serves:
            container["ports"] = [{"name": "http", "containerPort": PORT}]
            health = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": PERIOD_S}
            container["startupProbe"] = {**health, "failureThreshold": math.ceil(self._start_s() / PERIOD_S)}
            container["readinessProbe"] = {**health, "timeoutSeconds": 5}
            container["livenessProbe"] = {**health, "timeoutSeconds": 10, "failureThreshold": 6}
        container["volumeMounts"] = [
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "models", "mountPath": MOUNT, "readOnly": True},
        ]
        return {key: value for key, value in container.items() if value != []}

    def _start_s(self) -> float:
        weights = self._plan.get("model", {}).get("weights_bytes") or 0
        return max(PLENTY_S, 1.5 * (BASE_S + weights / SLOW_BYTES_S))

    def _environment(self) -> list[dict[str, Any]]:
        address = {"name": "VLLM_HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        return [
            address,
            *({"name": name, "value": self._wanted.interface} for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")),
        ]

    def _template(self, container: dict[str, Any], labels: Mapping[str, str], network: bool = True) -> dict[str, Any]:
        spec: dict[str, Any] = {}
        if network:
            apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": self._labels}}
            spec = {
                "hostNetwork": True,
                "dnsPolicy": "ClusterFirstWithHostNet",
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
            }
        spec["nodeSelector"] = dict(self._wanted.selector)
        spec["tolerations"] = [{"key": self._wanted.gpu, "operator": "Exists", "effect": "NoSchedule"}]
        spec["containers"] = [container]
        spec["volumes"] = [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{self._wanted.shm_gib}Gi"}},
            {"name": "models", "persistentVolumeClaim": {"claimName": self._wanted.claim, "readOnly": True}},
        ]
        return {"metadata": {"labels": dict(labels)}, "spec": spec}

    def _service(self, name: str, selector: Mapping[str, str]) -> dict[str, Any]:
        return _object(
            "v1",
            "Service",
            f"{name}-api",
            {"selector": dict(selector), "ports": [{"name": "http", "port": 80, "targetPort": "http"}]},
        )


def _object(version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
