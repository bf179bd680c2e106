"""Pods of a Kubernetes cluster: one exec a pod, through the API server, with the kubernetes client and the user's own kubeconfig.

`k8s:NAMESPACE/SELECTOR` as in `kubectl -n NAMESPACE get pods -l SELECTOR`; nothing has to be installed in the pods but Python. Over
the exec protocol standard input cannot be closed, so the payload's length goes with the command.
Source: Kubernetes API, pods/exec (v4.channel.k8s.io: channel 0 in, 1 out, 2 error output, 3 status).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from ncdiag.fleet import clock
from ncdiag.fleet.base import FleetError, Progress, Request
from ncdiag.fleet.clock import Stamp
from ncdiag.fleet.fanout import FANOUT, MAX_OUTPUT_BYTES
from ncdiag.fleet.remote import Answer, RemoteFleet, script
from ncdiag.model import NodeFacts

API_TIMEOUT_S = 15.0
CHUNK_BYTES = 1 << 14
"""Bytes of standard input in one message."""

STDOUT, STDERR, STATUS = 1, 2, 3
"""Channels of the exec protocol."""

BROKEN = 255
"""The exit status that ssh, too, gives where the connection failed."""

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""The annotation by which kubectl, too, picks the container."""


class K8sFleet(RemoteFleet):
    """`spec`: NAMESPACE/SELECTOR. Raises FleetError when the API server cannot be asked or no pod matches."""

    def __init__(self, spec: str) -> None:
        self._namespace, slash, selector = spec.partition("/")
        if not slash or not self._namespace or not selector:
            raise FleetError(f"--nodes k8s:{spec}: NAMESPACE/SELECTOR is wanted, as k8s:default/app=vllm")
        self._settings = _settings()
        self._pods = _pods(self._api(), self._namespace, selector)

    def collect(self, request: Request, progress: Progress) -> list[NodeFacts]:
        nodes = super().collect(request, progress)
        lost = [NodeFacts(name, unreachable=_why(pod)) for name, pod in self._pods.items() if _why(pod)]
        for node in (*nodes, *lost):
            pod = self._pods[node.node]
            node.meta["k8s"] = {"node": pod.spec.node_name, "address": pod.status.pod_ip, "phase": pod.status.phase}
        return sorted((*nodes, *lost), key=lambda node: list(self._pods).index(node.node))

    def names(self) -> list[str]:
        return list(self._pods)

    def run(
        self,
        packed: bytes,
        timeout_s: float,
        progress: Progress,
        *,
        only: Set[str] | None = None,
        together: bool = False,
    ) -> dict[str, Answer]:
        chosen = [name for name, pod in self._pods.items() if not _why(pod) and (only is None or name in only)]
        with ThreadPoolExecutor(max(1, len(chosen) if together else min(FANOUT, len(chosen)))) as pool:
            answers = dict(
                zip(chosen, pool.map(lambda name: self._exec(name, packed, timeout_s, progress), chosen), strict=True)
            )
        return answers

    def _api(self) -> Any:
        """A client of its own for every thread: an exec changes the client that it is made with."""
        from kubernetes import client

        return client.CoreV1Api(client.ApiClient(self._settings))

    def _exec(self, name: str, packed: bytes, timeout_s: float, progress: Progress) -> Answer:
        from kubernetes.client.exceptions import ApiException
        from kubernetes.stream import stream

        pod, api, called = self._pods[name], self._api(), time.time()
        try:
            channel = stream(
                api.connect_get_namespaced_pod_exec, name, self._namespace, container=_container(pod), command=["sh", "-c", script(len(packed))],
                stdin=True, stdout=True, stderr=True, tty=False, _preload_content=False, _request_timeout=API_TIMEOUT_S,
            )  # fmt: skip
            channel.sock.settimeout(timeout_s)
        except ApiException as error:
            answer = Answer(1, "", f"exec was refused: {_said(error)}")
        except Exception as error:  # the client's and the websocket's own kinds, OSError among them
            answer = Answer(1, "", f"exec failed: {type(error).__name__}: {error}")
        else:
            _feed(channel, packed)
            answer = _follow(channel, called, timeout_s)
        progress(name, "")
        return answer


def _feed(channel: Any, packed: bytes) -> None:
    """Writes the payload. Who does not take it in, or has ended already, is heard of by what was said or by the time it took."""
    with suppress(Exception):  # the websocket's own kinds, OSError among them
        for start in range(0, len(packed), CHUNK_BYTES):
            channel.write_stdin(packed[start : start + CHUNK_BYTES])


def _follow(channel: Any, called: float, timeout_s: float) -> Answer:
    """Reads until the command ends, its time is up or the connection breaks: what came before that counts as it does without."""
    heard: dict[int, list[str]] = {STDOUT: [], STDERR: [], STATUS: []}
    size, stamp, broken = 0, None, ""
    deadline = time.monotonic() + timeout_s - (time.time() - called)
    while channel.is_open() and not broken:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        try:
            channel.update(timeout=min(1.0, max(0.01, left)))
        except Exception as error:  # the websocket's own kinds, OSError among them
            broken = f"the connection to the pod broke: {type(error).__name__}: {error}"
        for number, parts in heard.items():
            new = _held(channel, number)
            size += len(new)
            if size <= MAX_OUTPUT_BYTES:
                parts.append(new)
        stamp = stamp or _stamp("".join(heard[STDOUT][:3]), called)
    for number, parts in heard.items():
        parts.append(_held(channel, number))
    out, err, status = ("".join(parts) for parts in heard.values())
    rc, said = _status(status)
    if rc is None and (broken or not channel.is_open()):
        rc, said = BROKEN, broken or "the connection to the pod ended without a status"
    with suppress(Exception):
        channel.close()
    return Answer(rc, out, f"{said}\n{err}", stamp)


def _held(channel: Any, number: int) -> str:
    """What has come in on a channel since it was last read; a connection that broke still holds it."""
    try:
        return str(channel.read_channel(number, timeout=0))
    except Exception:  # reading on meets the break again
        return ""


def _status(text: str) -> tuple[int | None, str]:
    """The exit status in the message of channel 3, and what else it says. None where there is none yet.

    Only a command that ran has an exit status; one that could not be started has the runtime's words ("executable file not found").
    Source: Kubernetes API, pods/exec; apimachinery, metav1.Status.
    """
    try:
        status = json.loads(text)
        if status["status"] == "Success":
            return 0, ""
        for cause in (status.get("details") or {}).get("causes") or ():
            if cause.get("reason") == "ExitCode":
                return int(cause["message"]), ""
        return 1, str(status["message"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None, ""


def _stamp(text: str, called: float) -> Stamp | None:
    found = (clock.read(line.encode(), called, time.time()) for line in text.splitlines()[:20])
    return next((stamp for stamp in found if stamp is not None), None)


def _settings() -> Any:
    """The kubeconfig's, or the pod's own. Raises FleetError."""
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise FleetError("--nodes k8s needs the kubernetes client: pip install 'ncdiag[k8s]'") from error
    settings = client.Configuration()
    try:
        config.load_kube_config(client_configuration=settings)
    except config.ConfigException as outside:
        try:
            config.load_incluster_config(client_configuration=settings)
        except config.ConfigException:
            raise FleetError(
                f"--nodes k8s: {outside}; name a configuration with KUBECONFIG, or run it in a pod"
            ) from outside
    settings.retries = 0
    return settings


def _pods(api: Any, namespace: str, selector: str) -> dict[str, Any]:
    from kubernetes.client.exceptions import ApiException

    asked = f"kubectl -n {namespace} get pods -l '{selector}'"
    try:
        found = api.list_namespaced_pod(namespace, label_selector=selector, _request_timeout=API_TIMEOUT_S).items
    except ApiException as error:
        raise FleetError(f"--nodes k8s:{namespace}/{selector}: {_said(error)}; try: {asked}") from error
    except Exception as error:  # urllib3's own kinds
        raise FleetError(
            f"--nodes k8s:{namespace}/{selector}: the API server cannot be reached ({type(error).__name__}); try: {asked}"
        ) from error
    if not found:
        raise FleetError(f"--nodes k8s:{namespace}/{selector}: no pod matches; try: {asked}")
    return {pod.metadata.name: pod for pod in sorted(found, key=lambda pod: pod.metadata.name)}


def _why(pod: Any) -> str | None:
    """Why nothing can be run in the pod, None where it can."""
    if pod.metadata.deletion_timestamp is not None:
        return "the pod is being deleted"
    if pod.status.phase == "Running":
        return None
    waiting = [
        state.state.waiting for state in pod.status.container_statuses or () if state.state and state.state.waiting
    ]
    reasons = [one.reason for one in waiting if one.reason] or ([pod.status.reason] if pod.status.reason else [])
    return f"the pod is {pod.status.phase}" + (f" ({', '.join(dict.fromkeys(reasons))})" if reasons else "")


def _container(pod: Any) -> str:
    annotations: Mapping[str, str] = pod.metadata.annotations or {}
    return annotations.get(DEFAULT_CONTAINER) or str(pod.spec.containers[0].name)


def _said(error: Any) -> str:
    """The server's own words for a refusal."""
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return f"{error.status} {error.reason}".strip()
