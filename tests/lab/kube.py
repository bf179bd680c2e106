"""A small local server that speaks the two parts of the Kubernetes API that the fleet uses: the list of pods, and exec over a websocket.

No API server can be had from the package registries, so this stands in for one: messages and channels are those of the protocol
(v4.channel.k8s.io; v5 adds closing of channels, which kubectl uses), and what is exec'ed really runs, as a process of this machine.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlparse

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
STDIN, STDOUT, STDERR, STATUS, CLOSE = 0, 1, 2, 3, 255


def pod(
    name: str, *, phase: str = "Running", node: str = "worker-1", address: str = "10.77.0.1", reason: str | None = None
) -> dict[str, Any]:
    state = {"running": {}} if phase == "Running" else {"waiting": {"reason": reason}}
    status = {
        "name": "engine",
        "image": "engine:1",
        "imageID": "",
        "ready": phase == "Running",
        "restartCount": 0,
        "state": state,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "llm", "labels": {"app": "vllm"}},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "engine", "image": "engine:1"}, {"name": "sidecar", "image": "other:1"}],
        },
        "status": {"phase": phase, "podIP": address, "containerStatuses": [status]},
    }


class Kube:
    """Serves `pods` on a loopback port; `wrap` changes the command of a pod (a banner, a hang);
    `breaks` resets its connection: "after" the status, or "before" it, when the command has ended but nobody was told.
    """

    def __init__(
        self,
        pods: list[dict[str, Any]],
        wrap: Callable[[str, list[str]], list[str]] = lambda name, argv: argv,
        breaks: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.pods = pods
        self.wrap = wrap
        self.breaks = breaks
        self.asked: list[str] = []
        self.token = base64.urlsafe_b64encode(os.urandom(12)).decode()
        handler = type("Handler", (_Handler,), {"kube": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def config(self, path: Path, token: str | None = None) -> Path:
        """A kubeconfig for it."""
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "lab",
                    "clusters": [{"name": "lab", "cluster": {"server": url}}],
                    "users": [{"name": "lab", "user": {"token": token or self.token}}],
                    "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
                }
            )
        )
        return path

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    kube: Kube

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        url = urlparse(self.path)
        query = parse_qs(url.query)
        parts = url.path.strip("/").split("/")
        self.kube.asked.append(self.path)
        if self.headers.get("Authorization") != f"Bearer {self.kube.token}":
            self._refuse(401, "Unauthorized")
        elif parts[:4] != ["api", "v1", "namespaces", "llm"] or parts[4:5] != ["pods"]:
            self._refuse(
                403,
                f'pods is forbidden: User "lab" cannot list resource "pods" in API group "" in the namespace "{"/".join(parts[3:4])}"',
            )
        elif len(parts) == 5:
            wanted = query.get("labelSelector", ["app=vllm"])[0]
            self._answer(
                200,
                {
                    "apiVersion": "v1",
                    "kind": "PodList",
                    "metadata": {},
                    "items": self.kube.pods if wanted == "app=vllm" else [],
                },
            )
        else:
            self._one(parts[5], parts[6:], query)

    def _one(self, name: str, rest: list[str], query: dict[str, list[str]]) -> None:
        found = [one for one in self.kube.pods if one["metadata"]["name"] == name]
        if not found:
            self._refuse(404, f'pods "{name}" not found')
        elif not rest:
            self._answer(200, found[0])
        elif rest == ["exec"] and query.get("container", ["engine"]) == ["engine"]:
            self._exec(name, query["command"])
        else:
            self._refuse(400, f"container not found in pod {name}")

    def _refuse(self, code: int, message: str) -> None:
        self._answer(
            code, {"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": message, "code": code}
        )

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _exec(self, name: str, argv: list[str]) -> None:
        offered = [one.strip() for one in self.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        protocol = next((one for one in ("v5.channel.k8s.io", "v4.channel.k8s.io") if one in offered), None)
        if protocol is None:
            self._refuse(400, f"unable to upgrade: no protocol of {offered} is known")
            return
        key = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + GUID).encode()).digest()).decode()
        self.send_response(101)
        for header, value in (
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", key),
            ("Sec-WebSocket-Protocol", protocol),
        ):
            self.send_header(header, value)
        self.end_headers()
        _Exec(self.rfile, self.wfile, self.kube.wrap(name, argv)).run(self.kube.breaks.get(name))
        if name in self.kube.breaks:  # a reset in place of an orderly end
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        self.close_connection = True


class _Exec:
    """One command, its channels carried in frames."""

    def __init__(self, reader: Any, writer: Any, argv: list[str]) -> None:
        self._reader, self._writer, self._lock = reader, writer, threading.Lock()
        self._argv = argv

    def run(self, breaks: str | None) -> None:
        """Raises nothing. What cannot be started is answered as containerd's words come through the API."""
        try:
            self._process = process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError:
            message = f'error executing command in container: OCI runtime exec failed: exec: "{self._argv[0]}": executable file not found in $PATH'
            self._status({"status": "Failure", "message": message, "reason": "InternalError",
                          "details": {"causes": [{"message": message}]}, "code": 500})  # fmt: skip
            return
        pumps = [threading.Thread(target=self._pump, args=(channel, pipe), daemon=True)
                 for channel, pipe in ((STDOUT, process.stdout), (STDERR, process.stderr))]  # fmt: skip
        threading.Thread(target=self._feed, daemon=True).start()
        for pump in pumps:
            pump.start()
        for pump in pumps:
            pump.join()
        code = process.wait()
        with contextlib.suppress(OSError):
            process.stdin.close()  # type: ignore[union-attr]
        if breaks == "before":
            return
        status: dict[str, Any] = {"status": "Success"}
        if code:
            causes = [{"reason": "ExitCode", "message": str(code)}]
            status = {"status": "Failure", "message": f"command terminated with exit code {code}", "reason": "NonZeroExitCode",
                      "details": {"causes": causes}, "code": 500}  # fmt: skip
        self._status(status)

    def _status(self, status: dict[str, Any]) -> None:
        self._send(bytes([STATUS]) + json.dumps({"metadata": {}, **status}).encode())
        self._send(struct.pack("!H", 1000), opcode=8)

    def _pump(self, channel: int, pipe: Any) -> None:
        with pipe:
            while chunk := os.read(pipe.fileno(), 1 << 15):
                self._send(bytes([channel]) + chunk)

    def _feed(self) -> None:
        """Standard input; the client's going ends the command, as the kubelet does it."""
        assert self._process.stdin
        try:
            while True:
                opcode, data = self._frame()
                if opcode == 8:
                    break
                if opcode == 9:
                    self._send(data, opcode=10)
                elif data[:1] == bytes([CLOSE]):
                    self._process.stdin.close()
                elif data[:1] == bytes([STDIN]) or data[:1] == b"0":
                    self._process.stdin.write(data[1:])
                    self._process.stdin.flush()
        except (OSError, ValueError, EOFError):
            pass
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def _frame(self) -> tuple[int, bytes]:
        first, second = self._take(2)
        size = second & 127
        if size == 126:
            (size,) = struct.unpack("!H", self._take(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self._take(8))
        mask = self._take(4)
        data = self._take(size)
        return first & 15, bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))

    def _take(self, count: int) -> bytes:
        data: bytes = self._reader.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def _send(self, data: bytes, opcode: int = 2) -> None:
        size = len(data)
        head = bytes([128 | opcode]) + (bytes([size]) if size < 126 else b"\x7e" + struct.pack("!H", size))
        with self._lock:
            try:
                self._writer.write(head + data)
                self._writer.flush()
            except OSError:
                pass
