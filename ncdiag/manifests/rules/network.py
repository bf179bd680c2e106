"""Host network, DNS, services and ports.

Source: Kubernetes, "DNS for Services and Pods" (dnsPolicy), "StatefulSet" (governing service), Service API (publishNotReadyAddresses).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ncdiag.manifests import quantity
from ncdiag.manifests.document import Document, mapping, sequence
from ncdiag.manifests.scene import Scene
from ncdiag.manifests.workload import Container, Role
from ncdiag.model import Finding, fail, ok, skip, warn

MULTUS = "k8s.v1.cni.cncf.io/networks"
HEALTH = ("/health", "/v1/", "/ping", "/version", "/metrics")


def host_network(scene: Scene) -> Iterator[Finding]:
    if not scene.workload.several_nodes:
        return
    for role, container in scene.devices():
        where: dict[str, Any] = {"role": role, "container": container}
        path = (*role.path, "hostNetwork")
        if role.spec.get("hostNetwork") is True:
            yield scene.say(ok, "it uses the node's network", path, **where)
        elif MULTUS in mapping(role.metadata.get("annotations")) or quantity.rdma_names(
            quantity.limits(container.data)
        ):
            yield scene.say(ok, "it has a network or an RDMA device of its own", path, **where)
        else:
            yield scene.say(
                warn, "the nodes talk over the pod network (often an overlay with a small MTU and no RDMA)", path, observed=role.spec.get("hostNetwork"), expected=True,
                cause="net-fallback-slow", remedy="hostNetwork: true with dnsPolicy: ClusterFirstWithHostNet, or a second network (Multus) with an RDMA device", **where,
            )  # fmt: skip


def dns(scene: Scene) -> Iterator[Finding]:
    seen = set()
    for role in scene.workload.roles:
        if role.spec.get("hostNetwork") is not True or role.path in seen:
            continue
        seen.add(role.path)
        policy = role.spec.get("dnsPolicy", "ClusterFirst")
        path = (*role.path, "dnsPolicy")
        if policy == "ClusterFirstWithHostNet" or (policy == "None" and role.spec.get("dnsConfig")):
            yield scene.say(ok, f"dnsPolicy {policy}", path, role=role)
        else:
            status = fail if scene.workload.several_nodes else warn
            yield scene.say(
                status, f"host network with dnsPolicy {policy}: names of services and of other pods are not found", path, role=role, observed=policy,
                expected="ClusterFirstWithHostNet", cause="bootstrap-peer-unreachable", remedy="dnsPolicy: ClusterFirstWithHostNet",
            )  # fmt: skip


def governing_service(scene: Scene) -> Iterator[Finding]:
    """The service that gives a StatefulSet's pods their names."""
    work = scene.workload
    if work.document.kind != "StatefulSet" or not work.several_nodes:
        return
    spec = mapping(work.document.data.get("spec"))
    name = spec.get("serviceName")
    where: dict[str, Any] = {"cause": "bootstrap-peer-unreachable"}
    if not name:
        yield scene.say(
            fail,
            "no serviceName: its pods have no names by which they find each other",
            ("spec", "serviceName"),
            remedy="add a headless service and name it here",
            **where,
        )
        return
    service = _service(scene, str(name))
    if service is None:
        yield scene.say(skip, f"the service {name} is not in these files", ("spec", "serviceName"))
        return
    told = mapping(service.data.get("spec"))
    if told.get("clusterIP") != "None":
        yield scene.say(
            fail,
            f"its service {name} is not headless ({service.source}:{service.line(('spec',))}): pods get no names",
            ("spec", "serviceName"),
            remedy=f"clusterIP: None in Service/{name}",
            **where,
        )
    elif told.get("publishNotReadyAddresses") is not True:
        yield scene.say(
            fail,
            f"its service {name} names pods only when they are ready ({service.source}:{service.line(('spec',))}); the engine is ready only when they have found each other",
            ("spec", "serviceName"), remedy=f"publishNotReadyAddresses: true in Service/{name}", **where,
        )  # fmt: skip
    else:
        yield scene.say(ok, f"its service {name} is headless and names pods at once", ("spec", "serviceName"))


def _service(scene: Scene, name: str) -> Document | None:
    return next((document for document in scene.of_kind("Service") if document.name == name), None)


def served_port(container: Container) -> int | None:
    """The port of the API server; None where it cannot be told, or the container serves none."""
    if container.engine is None or "--headless" in container.engine.options:
        return None
    return container.engine.number("--port") if "--port" in container.engine.options else 8000


def ports(scene: Scene) -> Iterator[Finding]:
    for role, container in scene.each():
        served = served_port(container)
        declared = [mapping(item) for item in sequence(container.data.get("ports"))]
        numbers = [item.get("containerPort") for item in declared]
        where: dict[str, Any] = {"role": role, "container": container}
        if served is not None and numbers and served not in numbers:
            yield scene.say(
                warn, f"the engine listens on port {served}, the container declares {', '.join(map(str, numbers))}", (*container.path, "ports"), observed=numbers, expected=served,
                cause="bootstrap-peer-unreachable", remedy=f"containerPort: {served}", **where,
            )  # fmt: skip
        if served is not None:
            yield from _probed(
                scene, role, container, served, {item.get("name"): item.get("containerPort") for item in declared}
            )
            yield from _target(scene, role, container, served, declared)
    yield from _ray_port(scene)


def _probed(scene: Scene, role: Role, container: Container, served: int, names: dict[Any, Any]) -> Iterator[Finding]:
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        probe = mapping(container.data.get(kind))
        for way in ("httpGet", "tcpSocket"):
            port = mapping(probe.get(way)).get("port")
            port = names.get(port, port)
            if (
                way in probe
                and str(port) != str(served)
                and (way == "httpGet" and str(mapping(probe[way]).get("path", "")).startswith(HEALTH))
            ):
                yield scene.say(
                    fail, f"{kind} asks port {port}, the engine listens on {served}", (*container.path, kind, way, "port"), role=role, container=container,
                    observed=port, expected=served, cause="bootstrap-peer-unreachable", remedy=f"port: {served}",
                )  # fmt: skip


def _target(
    scene: Scene, role: Role, container: Container, served: int, declared: list[dict[str, Any]]
) -> Iterator[Finding]:
    labels = mapping(role.metadata.get("labels"))
    names = {item.get("name"): item.get("containerPort") for item in declared}
    known = {served, *names.values()}
    for service in scene.of_kind("Service"):
        spec = mapping(service.data.get("spec"))
        selector = mapping(spec.get("selector"))
        if (
            not selector
            or spec.get("clusterIP") == "None"
            or any(labels.get(key) != value for key, value in selector.items())
        ):
            continue
        for item in sequence(spec.get("ports")):
            target = mapping(item).get("targetPort", mapping(item).get("port"))
            if (target not in names) if isinstance(target, str) else (target not in known):
                yield scene.say(
                    fail, f"Service/{service.name} sends to port {target} ({service.source}:{service.line(('spec', 'ports'))}), the engine listens on {served}",
                    (*container.path, "ports"), role=role, container=container, observed=target, expected=served, cause="bootstrap-peer-unreachable",
                    remedy=f"targetPort: {served}",
                )  # fmt: skip


def _ray_port(scene: Scene) -> Iterator[Finding]:
    """The port that workers dial is the one that the head listens on."""
    heads = [one.ray.get("--port", "6379") for _, one in scene.each() if one.ray is not None and "--head" in one.ray]
    for role, container in scene.each():
        if container.ray is None or "--head" in container.ray or not heads:
            continue
        address, _, port = container.ray.get("--address", "").rpartition(":")
        if address and port.isdecimal() and heads[0].isdecimal() and port != heads[0]:
            yield scene.say(
                fail, f"it dials Ray at port {port}, the head listens on {heads[0]}", container.path, role=role, container=container, observed=port, expected=heads[0],
                cause="ray-gcs-unreachable", remedy=f"--address=…:{heads[0]}",
            )  # fmt: skip
