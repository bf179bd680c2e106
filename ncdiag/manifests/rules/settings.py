"""The environment: NCCL's variables as NCCL reads them, alike in all pods, and addresses that are each pod's own.

Source: ncdiag/nccl/environment.py and contradictions.py; vLLM, "Environment variables" (VLLM_HOST_IP).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ncdiag.manifests import quantity
from ncdiag.manifests.document import mapping, sequence
from ncdiag.manifests.scene import Scene
from ncdiag.manifests.workload import Container, Role
from ncdiag.model import Finding, fail, ok, warn
from ncdiag.nccl import contradictions
from ncdiag.nccl.environment import LOOKS_LIKE_NCCL, name_problem, value_problem

SAME_EVERYWHERE = ("NCCL_", "GLOO_", "VLLM_", "TORCH_NCCL_", "RAY_")
OWN = {"VLLM_HOST_IP", "NCCL_DEBUG_FILE", "NCCL_HOSTID", "RAY_NODE_IP_ADDRESS"}
"""May, or must, differ between pods."""
ADDRESSES = ("VLLM_HOST_IP", "HOST_IP", "POD_IP", "NODE_IP", "RAY_NODE_IP_ADDRESS")


def _entries(container: Container) -> Iterator[tuple[int, str, Any]]:
    for number, item in enumerate(sequence(container.data.get("env"))):
        entry = mapping(item)
        if "name" in entry:
            yield number, str(entry["name"]), entry.get("value")


def environment(scene: Scene) -> Iterator[Finding]:
    for role, container in scene.each():
        problems = [
            *_types(scene, role, container),
            *_names_and_values(scene, role, container),
            *_contradictions(scene, role, container),
            *_addresses(scene, role, container),
            *_from_maps(scene, role, container),
        ]
        yield from problems
        if not problems and any(LOOKS_LIKE_NCCL.match(name) for name in container.environment):
            yield scene.say(
                ok,
                "NCCL knows its variables and reads them as they look",
                (*container.path, "env"),
                role=role,
                container=container,
            )


def _types(scene: Scene, role: Role, container: Container) -> Iterator[Finding]:
    for number, name, value in _entries(container):
        if value is not None and not isinstance(value, str):
            yield scene.say(
                fail, f"{name}: {value!r} is no text, and the API server refuses it", (*container.path, "env", number, "value"), role=role, container=container,
                cause="env-unknown-or-invalid", remedy=f'value: "{str(value).lower() if isinstance(value, bool) else value}"',
            )  # fmt: skip


def _names_and_values(scene: Scene, role: Role, container: Container) -> Iterator[Finding]:
    for number, name, value in _entries(container):
        if not LOOKS_LIKE_NCCL.match(name):
            continue
        problem = name_problem(name) or (value_problem(name, str(value)) if value is not None else None)
        if problem is not None and problem.kind != "noted":
            yield scene.say(
                warn, problem.summary, (*container.path, "env", number), role=role, container=container, observed=value, expected=problem.expected,
                cause="env-unknown-or-invalid", remedy=problem.remedy, setting=name,
            )  # fmt: skip


def _from_maps(scene: Scene, role: Role, container: Container) -> Iterator[Finding]:
    """Variables that come from a ConfigMap in the same files."""
    named = [mapping(mapping(one).get("configMapRef")).get("name") for one in sequence(container.data.get("envFrom"))]
    for document in scene.of_kind("ConfigMap"):
        if document.name not in named:
            continue
        for name, value in mapping(document.data.get("data")).items():
            problem = (name_problem(name) or value_problem(name, str(value))) if LOOKS_LIKE_NCCL.match(name) else None
            if problem is not None and problem.kind != "noted":
                yield scene.say(
                    warn,
                    f"{problem.summary} (from ConfigMap/{document.name})",
                    ("data", name),
                    role=role,
                    container=container,
                    document=document,
                    observed=value,
                    expected=problem.expected,
                    cause="env-unknown-or-invalid",
                    remedy=problem.remedy,
                    setting=name,
                )


def _contradictions(scene: Scene, role: Role, container: Container) -> Iterator[Finding]:
    values = container.environment
    machine = contradictions.Machine(
        None, None, bool(quantity.rdma_names(quantity.limits(container.data))), scene.workload.several_nodes
    )
    places = {name: number for number, name, _ in _entries(container)}
    for trouble in contradictions.find(values, machine):
        yield scene.say(
            fail if trouble.fatal else warn, trouble.summary, (*container.path, "env", places.get(trouble.name, 0)), role=role, container=container,
            observed=values.get(trouble.name), expected=trouble.expected, cause=trouble.cause, remedy=trouble.remedy, setting=trouble.name,
        )  # fmt: skip


def _addresses(scene: Scene, role: Role, container: Container) -> Iterator[Finding]:
    shared = role.pods is None or role.pods > 1 or sum(one.path == role.path for one in scene.workload.roles) > 1
    for number, name, value in _entries(container):
        if name in ADDRESSES and isinstance(value, str) and value[:1].isdecimal() and shared:
            yield scene.say(
                fail, f"{name}={value} is the same in all pods of this template", (*container.path, "env", number), role=role, container=container, observed=value,
                expected="each pod's own", cause="node-ip-wrong-interface", remedy="valueFrom: {fieldRef: {fieldPath: status.podIP}}", setting=name,
            )  # fmt: skip


def interface(scene: Scene) -> Iterator[Finding]:
    """On the node's network there are many interfaces; NCCL and gloo must be told which."""
    if not scene.workload.several_nodes:
        return
    for role, container in scene.devices():
        if role.spec.get("hostNetwork") is not True or container.data.get("envFrom"):
            continue
        path = (*container.path, "env")
        missing = [
            name
            for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
            if name not in [entry[1] for entry in _entries(container)]
        ]
        if missing:
            yield scene.say(
                warn, f"on the node's network without {' and '.join(missing)}: which interface is used is left to chance (docker0, cni0)", path, role=role, container=container,
                cause="socket-ifname-wrong", remedy=f"set {' and '.join(missing)} to the interface that reaches the other nodes",
            )  # fmt: skip
        else:
            yield scene.say(ok, "NCCL and gloo are told their interface", path, role=role, container=container)


def alike(scene: Scene) -> Iterator[Finding]:
    """What NCCL, gloo, Ray and vLLM read is the same in every role of an engine that holds GPUs."""
    roles = list(scene.devices())
    if len(roles) < 2:
        return
    first_role, first = roles[0]
    for role, container in roles[1:]:
        for name in sorted({*_shown(first), *_shown(container)}):
            here, there = _shown(container).get(name), _shown(first).get(name)
            if here != there:
                number = next((number for number, other, _ in _entries(container) if other == name), None)
                path = (*container.path, "env") if number is None else (*container.path, "env", number)
                yield scene.say(
                    warn, f"{name} is {here or 'not set'} here and {there or 'not set'} in {first_role.name}", path, role=role, container=container, observed=here, expected=there,
                    cause="env-unknown-or-invalid", remedy="give every role the same", setting=name,
                )  # fmt: skip


def _shown(container: Container) -> dict[str, str]:
    return {
        name: value
        for name, value in container.environment.items()
        if name.startswith(SAME_EVERYWHERE) and name not in OWN
    }
