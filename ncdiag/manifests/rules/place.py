"""Where pods land, and what model they find there.

Source: Kubernetes, "Assigning Pods to Nodes", "Persistent Volumes" (access modes); vLLM, --model and HF_HOME.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ncdiag.manifests.document import mapping, sequence
from ncdiag.manifests.scene import Scene
from ncdiag.manifests.workload import Container, Role
from ncdiag.model import Finding, fail, ok, skip, warn

CACHE_VARIABLES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "VLLM_CACHE_ROOT")
CACHE_HOME = "/root/.cache"
EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"


def nodes(scene: Scene) -> Iterator[Finding]:
    """All pods of an engine on nodes of one kind."""
    if not scene.workload.several_nodes:
        return
    for role, container in scene.devices():
        affinity = mapping(mapping(role.spec.get("affinity")).get("nodeAffinity"))
        if (
            role.spec.get("nodeSelector")
            or affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
            or role.spec.get("nodeName")
        ):
            yield scene.say(
                ok, "its nodes are chosen by label", (*role.path, "nodeSelector"), role=role, container=container
            )
        else:
            yield scene.say(
                warn, "nothing says which nodes: pods of one engine can land on different GPUs or networks", (*role.path, "nodeSelector"), role=role, container=container,
                cause="hca-mismatch-between-nodes", remedy="nodeSelector: {nvidia.com/gpu.product: …}, or the label of your GPU pool",
            )  # fmt: skip


def apart(scene: Scene) -> Iterator[Finding]:
    """On the node's network two pods of one node want the same ports."""
    work = scene.workload
    several = work.several_nodes or work.copies is None or work.copies > 1
    seen = set()
    for role, container in scene.each():
        if role.spec.get("hostNetwork") is not True or not several or role.path in seen:
            continue
        seen.add(role.path)
        path = (*role.path, "affinity")
        anti = mapping(mapping(role.spec.get("affinity")).get("podAntiAffinity")).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
        spread = any(
            mapping(one).get("whenUnsatisfiable") == "DoNotSchedule"
            for one in sequence(role.spec.get("topologySpreadConstraints"))
        )
        exclusive = EXCLUSIVE in mapping(mapping(work.document.data.get("metadata")).get("annotations"))
        if anti or spread or exclusive or container.data.get("ports"):
            yield scene.say(ok, "two of its pods do not come to one node", path, role=role, container=container)
        else:
            yield scene.say(
                warn, "on the node's network, with no ports declared and no anti-affinity: two pods can come to one node and want the same ports", path, role=role, container=container,
                cause="port-in-use", remedy="podAntiAffinity by kubernetes.io/hostname, or declare the ports",
            )  # fmt: skip


def model(scene: Scene) -> Iterator[Finding]:
    for role, container in scene.each():
        if container.engine is None or not container.engine.model:
            continue
        name = container.engine.model
        if "$" in name:
            yield scene.say(skip, f"the model {name} is a variable", container.path, role=role, container=container)
        elif name.startswith("/"):
            yield from _mounted(scene, role, container, name)
        else:
            yield from _cached(scene, role, container, name)
    yield from _claims(scene)


def _mount(container: Container, path: str) -> dict[str, Any] | None:
    """The mount that holds `path`: the deepest."""
    mounts = [mapping(one) for one in sequence(container.data.get("volumeMounts"))]
    holding = [
        one
        for one in mounts
        if (path + "/").startswith(str(one.get("mountPath", "")).rstrip("/") + "/") and one.get("mountPath")
    ]
    return max(holding, key=lambda one: len(str(one["mountPath"])), default=None)


def _volume(role: Role, mount: dict[str, Any]) -> dict[str, Any]:
    return next(
        (mapping(one) for one in sequence(role.spec.get("volumes")) if mapping(one).get("name") == mount.get("name")),
        {},
    )


def _mounted(scene: Scene, role: Role, container: Container, name: str) -> Iterator[Finding]:
    mount = _mount(container, name)
    path = (*container.path, "volumeMounts")
    if mount is None:
        yield scene.say(
            fail, f"no volume is mounted at {name}: the model is there only if the image holds it", path, role=role, container=container, expected=name,
            cause="model-path-missing", remedy=f"mount the volume with the model at {name.rpartition('/')[0] or name}",
        )  # fmt: skip
        return
    claimed = any(
        mapping(mapping(one).get("metadata")).get("name") == mount.get("name")
        for one in sequence(mapping(scene.workload.document.data.get("spec")).get("volumeClaimTemplates"))
    )
    volume = _volume(role, mount)
    if not volume and not claimed:
        yield scene.say(
            fail, f"{mount.get('mountPath')} mounts the volume {mount.get('name')!r}, which is not there", path, role=role, container=container, cause="model-path-missing",
            remedy="add it under volumes",
        )  # fmt: skip
    elif "emptyDir" in volume and not role.spec.get("initContainers"):
        yield scene.say(
            fail, f"{name} lies on an emptyDir, which begins empty, and nothing fills it", path, role=role, container=container, cause="model-path-missing",
            remedy="a persistentVolumeClaim, or an init container that fetches the model",
        )  # fmt: skip
    else:
        yield scene.say(ok, f"{name} is on the volume {mount.get('name')}", path, role=role, container=container)


def _cached(scene: Scene, role: Role, container: Container, name: str) -> Iterator[Finding]:
    homes = [container.environment[variable] for variable in CACHE_VARIABLES if variable in container.environment]
    homes += (
        [container.engine.options["--download-dir"]]
        if container.engine and container.engine.options.get("--download-dir")
        else []
    )
    mount = next(
        (
            found
            for home in [*homes, CACHE_HOME, f"{CACHE_HOME}/huggingface", f"{CACHE_HOME}/huggingface/hub"]
            if (found := _mount(container, home))
        ),
        None,
    )
    path = (*container.path, "volumeMounts")
    if mount is None or "emptyDir" in _volume(role, mount):
        yield scene.say(
            warn, f"{name} is fetched from the network again at every start of every pod", path, role=role, container=container, cause="storage-slow",
            remedy="keep the cache on a volume: mount one and set HF_HOME to it, or give --model a path on shared storage",
        )  # fmt: skip
    else:
        yield scene.say(ok, f"{name} is kept on the volume {mount.get('name')}", path, role=role, container=container)


def _claims(scene: Scene) -> Iterator[Finding]:
    """A volume that one node only can mount, under pods on several."""
    if not scene.workload.several_nodes:
        return
    for role in scene.workload.roles:
        for number, volume in enumerate(sequence(role.spec.get("volumes"))):
            claim = mapping(mapping(volume).get("persistentVolumeClaim")).get("claimName")
            found = next(
                (document for document in scene.of_kind("PersistentVolumeClaim") if document.name == claim), None
            )
            modes = sequence(mapping(found.data.get("spec")).get("accessModes")) if found else []
            if found and modes and not {"ReadWriteMany", "ReadOnlyMany"} & set(modes):
                yield scene.say(
                    fail, f"the claim {claim} is {', '.join(map(str, modes))} ({found.source}:{found.line(('spec', 'accessModes'))}): one node only can mount it",
                    (*role.path, "volumes", number), role=role, observed=modes, expected="ReadOnlyMany or ReadWriteMany", cause="model-path-missing",
                    remedy="a claim that several nodes can mount, or one for each pod (volumeClaimTemplates)",
                )  # fmt: skip
                break
