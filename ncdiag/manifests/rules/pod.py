"""/dev/shm, locked memory, GPUs and RDMA devices of each pod.

Source: Kubernetes, "Volumes" (emptyDir), "Set capabilities for a container", "Schedule GPUs"; containerd's 64 MiB of /dev/shm; KubeRay's
pod builder, which mounts /dev/shm in the first container where nothing is; what vLLM and NCCL take of it as in probes/shm.py; NCCL user
guide, "InfiniBand" and "Shared memory".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ncdiag.manifests import quantity
from ncdiag.manifests.document import mapping, sequence
from ncdiag.manifests.scene import Scene
from ncdiag.manifests.workload import Container, Role
from ncdiag.model import Finding, fail, ok, skip, warn
from ncdiag.nodeset import counted

SHM_NEEDED = 160 << 20
SHM_COMFORTABLE = 1 << 30
"""As in probes/shm.py."""


def shm(scene: Scene) -> Iterator[Finding]:
    for role, container in scene.devices():
        yield _shm(scene, role, container)


def _shm(scene: Scene, role: Role, container: Container) -> Finding:
    where: dict[str, Any] = {"role": role, "container": container, "cause": "shm-too-small"}
    remedy = "add a volume {emptyDir: {medium: Memory, sizeLimit: 16Gi}} and mount it at /dev/shm"
    mounts = sequence(container.data.get("volumeMounts"))
    place = next(
        (
            number
            for number, one in enumerate(mounts)
            if str(mapping(one).get("mountPath", "")).rstrip("/") == "/dev/shm"
        ),
        None,
    )
    if place is None:
        if role.spec.get("hostIPC") is True:
            return scene.say(
                ok, "/dev/shm is the node's (hostIPC)", (*role.path, "hostIPC"), role=role, container=container
            )
        if scene.workload.document.kind.startswith("Ray") and container.path[-1] == 0:
            return scene.say(
                ok,
                "KubeRay mounts memory at /dev/shm, as much as the container's memory limit",
                container.path,
                role=role,
                container=container,
            )
        return scene.say(
            fail,
            "nothing is mounted at /dev/shm: it has 64 MiB",
            (*container.path, "volumeMounts"),
            observed="64Mi",
            expected="1Gi or more",
            remedy=remedy,
            **where,
        )
    name = str(mapping(mounts[place]).get("name", ""))
    volumes = sequence(role.spec.get("volumes"))
    index = next((number for number, one in enumerate(volumes) if mapping(one).get("name") == name), None)
    if index is None:
        return scene.say(
            fail,
            f"/dev/shm mounts the volume {name!r}, which is not there",
            (*container.path, "volumeMounts", place),
            remedy=remedy,
            **where,
        )
    path = (*role.path, "volumes", index)
    volume = mapping(volumes[index])
    if "emptyDir" not in volume:
        if "hostPath" in volume and mapping(volume["hostPath"]).get("path") == "/dev/shm":
            return scene.say(ok, "/dev/shm is the node's", path, role=role, container=container)
        return scene.say(
            warn,
            f"/dev/shm is the volume {name!r}, which is no memory: shared memory goes over a disk",
            path,
            remedy=remedy,
            **where,
        )
    empty = mapping(volume["emptyDir"])
    path = (*path, "emptyDir")
    if empty.get("medium") != "Memory":
        return scene.say(
            fail,
            "/dev/shm is an emptyDir on disk: it wants medium: Memory",
            path,
            observed=empty.get("medium") or "disk",
            expected="Memory",
            remedy=remedy,
            **where,
        )
    size = quantity.number(empty.get("sizeLimit"))
    path = (*path, "sizeLimit")
    if size is None:
        return scene.say(
            warn,
            "the emptyDir at /dev/shm has no sizeLimit: what is written there may take the pod's or node's memory",
            path,
            remedy=remedy,
            **where,
        )
    if size < SHM_COMFORTABLE:
        status = fail if size < SHM_NEEDED else warn
        return scene.say(
            status,
            f"/dev/shm has {size / 2**20:.0f} MiB",
            path,
            observed=size,
            expected=SHM_COMFORTABLE,
            remedy=remedy,
            **where,
        )
    memory = quantity.number(quantity.limits(container.data).get("memory"))
    if memory is not None and size >= memory:
        return scene.say(
            warn, f"/dev/shm may take {size / 2**30:.0f} GiB, the container's memory limit is {memory / 2**30:.0f} GiB, and shared memory counts towards it",
            path, role=role, container=container, cause="host-memory-oom", remedy="raise limits.memory above sizeLimit and what the engine needs",
        )  # fmt: skip
    return scene.say(ok, f"/dev/shm has {size / 2**30:.0f} GiB of memory", path, role=role, container=container)


def _privileged(container: Container) -> bool:
    return mapping(container.data.get("securityContext")).get("privileged") is True


def wants_rdma(container: Container) -> bool:
    """RDMA is asked for: a device, or a setting that only counts with one."""
    if container.environment.get("NCCL_IB_DISABLE") == "1":
        return False
    return bool(quantity.rdma_names(quantity.limits(container.data))) or any(
        name.startswith("NCCL_IB_HCA") for name in container.environment
    )


def ipc_lock(scene: Scene) -> Iterator[Finding]:
    for role, container in scene.devices():
        if not wants_rdma(container):
            continue
        path = (*container.path, "securityContext")
        context = mapping(container.data.get("securityContext"))
        added = [str(name).removeprefix("CAP_") for name in sequence(mapping(context.get("capabilities")).get("add"))]
        if _privileged(container) or "IPC_LOCK" in added or "ALL" in added:
            yield scene.say(ok, "it may lock memory", path, role=role, container=container)
        else:
            yield scene.say(
                fail, "it uses RDMA without IPC_LOCK: registering memory fails at the locked-memory limit", path, role=role, container=container,
                observed=added, expected="IPC_LOCK", cause="memlock-limit", remedy="securityContext: {capabilities: {add: [IPC_LOCK]}}",
            )  # fmt: skip


def rdma(scene: Scene) -> Iterator[Finding]:
    if not scene.workload.several_nodes:
        return
    for role, container in scene.devices():
        path = (*container.path, "resources")
        where: dict[str, Any] = {"role": role, "container": container}
        names = quantity.rdma_names(quantity.limits(container.data))
        if names:
            yield scene.say(ok, f"RDMA devices: {', '.join(names)}", (*path, "limits", names[0]), **where)
            continue
        asked = quantity.rdma_names(quantity.requests(container.data))
        if asked:
            yield scene.say(
                fail, f"{asked[0]} stands in requests and not in limits: the API server refuses it", (*path, "requests", asked[0]),
                cause="rdma-unavailable", remedy=f"put {asked[0]} under limits", **where,
            )  # fmt: skip
        elif _privileged(container) and role.spec.get("hostNetwork") is True:
            yield scene.say(ok, "RDMA devices are the node's (privileged, host network)", path, **where)
        elif sequence(role.spec.get("resourceClaims")):
            yield scene.say(
                skip,
                "devices come by resource claims, which cannot be judged here",
                (*role.path, "resourceClaims"),
                **where,
            )
        elif container.environment.get("NCCL_IB_DISABLE") == "1":
            yield scene.say(
                warn,
                "NCCL_IB_DISABLE=1: the nodes talk over TCP",
                (*container.path, "env"),
                cause="net-fallback-slow",
                remedy="if the nodes have RDMA, give the pods a device",
                **where,
            )
        else:
            yield scene.say(
                warn, "no RDMA device is asked for: NCCL falls back to TCP between the nodes", path, cause="net-fallback-slow",
                remedy="ask for one under limits (rdma/hca: 1, nvidia.com/…, vpc.amazonaws.com/efa: as the device plugin calls it)", **where,
            )  # fmt: skip


def gpus(scene: Scene) -> Iterator[Finding]:
    for role, container in scene.devices():
        path = (*container.path, "resources")
        where: dict[str, Any] = {"role": role, "container": container, "cause": "visible-devices-conflict"}
        limits, asked = quantity.limits(container.data), quantity.requests(container.data)
        names = quantity.gpu_names(limits)
        for name in quantity.gpu_names(asked):
            if name not in limits:
                yield scene.say(
                    fail,
                    f"{name} stands in requests and not in limits: the API server refuses it",
                    (*path, "requests", name),
                    remedy=f"put {name} under limits",
                    **where,
                )
            elif quantity.number(asked[name]) != quantity.number(limits[name]):
                yield scene.say(
                    fail,
                    f"{name}: requests {asked[name]} and limits {limits[name]} differ: the API server refuses it",
                    (*path, "requests", name),
                    remedy="make them equal",
                    **where,
                )
        if not names and not quantity.gpu_names(asked) and not role.claims_devices:
            yield scene.say(
                fail,
                "no GPU is asked for",
                path,
                expected="nvidia.com/gpu under limits",
                remedy="resources: {limits: {nvidia.com/gpu: 8}}",
                **where,
            )
        elif names:
            yield scene.say(
                ok,
                f"{counted(container.gpus, 'GPU')} a pod",
                (*path, "limits", names[0]),
                role=role,
                container=container,
            )
        if "NVIDIA_VISIBLE_DEVICES" in container.environment or "CUDA_VISIBLE_DEVICES" in container.environment:
            yield scene.say(
                warn, "NVIDIA_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES is set by hand, against what the device plugin gives", (*container.path, "env"),
                remedy="take it out; the device plugin sets it", **where,
            )  # fmt: skip
