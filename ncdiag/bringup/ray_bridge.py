"""Runs in the engine's interpreter: connects to its Ray cluster and looks at each node in one task pinned there. Travels; Python 3.8.

The same requests and answers as of `node`, but an answer holds `nodes`. The task asks for no resources and starts the sampler in an
interpreter of its own, so that nothing of ncdiag stays in Ray's worker.
"""

from __future__ import annotations

import io
import json
import os
import re
import socket
import sys
import time
import zipfile
import zlib
from typing import Any, Dict, List, Mapping, Set

from ncdiag.bringup.serve import MARK

TASK_S = 20.0
"""How long the tasks of one look may take; less where the request gives its answer less time."""
CONNECT_S = 5.0
INLINE = 90_000
"""Bytes of an argument that still travel with the call itself. Larger ones, and larger results, go from one node's object store to the
other's over ports of their own, which may be just what is blocked."""
ROOM, ROOM_S = 64 << 10, 5.0
"""Bytes that a node's agent is given to unpack, and for how long that may take (2 s with Ray's own retries)."""
_CRASHED, _ERRNO = "worker died unexpectedly", re.compile(r"\w+: \[Errno \d+\][^\n]*")
"""How Ray says that no worker of its own came up or stayed, and how Python says what the system refused."""
_LOST = ("the node it was running on is dead", "doesn't exist any more")
"""How Ray says of a task that its node has left."""
_RUN = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from ncdiag.bringup import node, serve
eye = node.Node()
request, py_spy = json.loads(sys.stdin.readline()), sys.stdin.read()
if request.get("memory"):
    eye.remember(request.pop("memory"))
found = bool(serve.find_py_spy(eye))
if py_spy and not found:
    serve.brought(py_spy)
answer = eye.look(request)
print(node.MARK + json.dumps({**answer, "memory": eye.memory(), "py_spy": found}), flush=True)
"""


def ncdiag_look(run: str, request: str, timeout_s: float, count: int, *pieces: Any) -> bytes:
    """On the node, in a Ray worker: what the sampler printed, compressed. `pieces`: `count` of ncdiag itself (bytes), then those of py-spy (str)."""
    import os
    import subprocess
    import sys
    import zlib

    descriptor, content = os.memfd_create("ncdiag", 0), b"".join(pieces[:count])
    try:
        while content:
            content = content[os.write(descriptor, content) :]
        path = "/proc/%d/fd/%d" % (os.getpid(), descriptor)
        done = subprocess.run(
            [sys.executable, "-S", "-I", "-c", run, path],
            input=(request + "\n" + "".join(pieces[count:])).encode(),
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        return zlib.compress(done.stdout or done.stderr[-500:])
    except subprocess.TimeoutExpired:
        return zlib.compress(b"no answer within %g s" % timeout_s)
    finally:
        os.close(descriptor)


def ncdiag_room() -> None:
    """Nothing to do: what counts is whether its runtime environment could be unpacked."""


def cut(whole: Any) -> List[Any]:
    """Bytes or text in pieces that each travel with the call itself."""
    return [whole[at : at + INLINE] for at in range(0, len(whole), INLINE)]


class Bridge:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.py_spy = ""
        self.ray: Any = None
        self._memory: Dict[str, Any] = {}
        self._without_py_spy: Set[str] = set()
        self._seen: Set[str] = set()
        """Nodes that were alive at a look."""
        self._refused: Dict[str, str] = {}
        """Node on which no worker lives -> what its system refused the agent; empty where it refused nothing."""

    def connect(self, address: str) -> str:
        """Empty when connected, else the reason."""
        if self.ray is not None:
            return ""
        host, colon, port = address.rpartition(":")
        try:
            if colon and port.isdecimal() and "://" not in address:
                socket.create_connection((host, int(port)), CONNECT_S).close()
            import ray

            ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
            ray.init(address=address or "auto", namespace="ncdiag", logging_level="error", log_to_driver=False)
        except Exception as error:
            first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            return "cannot reach the Ray cluster at %s: %s" % (address or "auto", first.strip()[:300])
        self.ray = ray
        return ""

    def look(self, request: Mapping[str, Any]) -> List[Dict[str, Any]]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray, waiting, answers, began = self.ray, {}, [], time.monotonic()
        task_s = min(TASK_S, max(request.get("answer_s", TASK_S) - 1, 2.0))
        nodes = ray.nodes()
        addresses = {info["NodeID"]: info["NodeManagerAddress"] for info in nodes}
        here = {info["NodeManagerAddress"] for info in nodes if info["Alive"]}
        for info in nodes:
            name = info["NodeManagerHostname"]
            if not info["Alive"]:
                if info["NodeManagerAddress"] not in here:  # else it has come back under another number
                    answers.append(_dead(info, info["NodeID"] in self._seen))
                continue
            self._seen.add(info["NodeID"])
            task = ray.remote(ncdiag_look).options(
                num_cpus=0,
                max_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(info["NodeID"], soft=False),
            )
            text = json.dumps({**request, "memory": self._memory.get(info["NodeID"])})
            own = cut(self.content)
            py_spy = cut(self.py_spy) if info["NodeID"] in self._without_py_spy else []
            call = task.remote(_RUN, text, max(task_s - 2, 1.5), len(own), *own, *py_spy)
            waiting[call] = name, info["NodeID"]
        ready, late = ray.wait(list(waiting), num_returns=len(waiting), timeout=task_s)
        for reference in ready:
            try:
                name, node_id = waiting[reference]
                answer = _answer(name, zlib.decompress(ray.get(reference)).decode("utf-8", "replace"))
                self._memory[node_id] = answer.pop("memory", None)
                if not answer.pop("py_spy", True):
                    self._without_py_spy.add(node_id)
                answers.append({**answer, "address": addresses[node_id]})
            except ray.exceptions.RayError as error:
                node_id, words = waiting[reference][1], str(error)
                answers.append(
                    {
                        "node": waiting[reference][0],
                        "address": addresses[node_id],
                        "error": "its Ray task failed: %s" % words.strip().splitlines()[0][:300],
                        "lost": "now" if any(lost in words for lost in _LOST) else "",
                        "refused": self._why(node_id, began + task_s) if _CRASHED in words else "",
                    }
                )
        for reference in late:
            ray.cancel(reference, force=True)
            answers.append({"node": waiting[reference][0], "error": "no answer through Ray within %g s" % task_s})
        return answers

    def _why(self, node_id: str, until: float) -> str:
        """What `refused` of a node has; asked once, where the time is left."""
        left_s = min(ROOM_S, until - time.monotonic())
        if node_id not in self._refused and left_s > 1:
            try:
                self._refused[node_id] = self._have_written(node_id, left_s)
            except Exception:  # what Ray calls these inside may differ between its versions: then nothing is known
                self._refused[node_id] = ""
        return self._refused.get(node_id, "")

    def _have_written(self, node_id: str, left_s: float) -> str:
        """A node's agent unpacks the runtime environment of a task before there is a worker, into the folder in which workers begin theirs."""
        from ray.experimental import internal_kv
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr("ncdiag_room/bytes", os.urandom(ROOM))
        name = "gcs://_ray_pkg_ncdiag%s.zip" % os.urandom(8).hex()
        internal_kv._internal_kv_put(name.encode(), content.getvalue())
        try:
            task = self.ray.remote(ncdiag_room).options(
                num_cpus=0,
                max_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
                runtime_env={"py_modules": [name]},
            )
            self.ray.get(task.remote(), timeout=left_s)
        except self.ray.exceptions.RuntimeEnvSetupError as error:
            return refusal(str(error))
        except self.ray.exceptions.RayError:
            return ""
        finally:
            internal_kv._internal_kv_del(name.encode())
        return ""


def refusal(words: str) -> str:
    """The first thing that the system refused in the traceback of a node's agent, as Python says it; empty where it names none."""
    told = _ERRNO.search(words)
    return told.group()[:300] if told else ""


def _dead(info: Mapping[str, Any], was_alive: bool) -> Dict[str, Any]:
    """Of a node that Ray counts as dead. `lost`: `now` when it was alive at an earlier look, else `before`: it may have been gone for long."""
    reason = (info.get("DeathReasonMessage") or "").strip().splitlines()
    words = "Ray counts this node as dead" + (": " + reason[0][:200] if reason else "")
    return {"node": info["NodeManagerHostname"], "error": words, "lost": "now" if was_alive else "before"}


def _answer(node: str, printed: str) -> Dict[str, Any]:
    for line in printed.splitlines():
        if line.startswith(MARK):
            return dict(json.loads(line[len(MARK) :]))
    return {
        "node": node,
        "error": printed.strip().splitlines()[-1][:300] if printed.strip() else "its sampler said nothing",
    }


def serve() -> None:
    """Answers requests until stdin ends."""
    with open(sys.path[0], "rb") as file:
        bridge = Bridge(file.read())
    _say({"ready": "ray", "machine": os.uname().machine, "needs": ["py-spy"]})
    for line in sys.stdin:
        request = json.loads(line)
        if "py_spy" in request:
            bridge.py_spy = request["py_spy"]
            continue
        reason = bridge.connect(request.get("address", ""))
        try:
            _say({"nodes": [{"node": "ray", "error": reason}] if reason else bridge.look(request)})
        except Exception as error:
            _say({"nodes": [{"node": "ray", "error": "%s: %s" % (type(error).__name__, error)}]})


def _say(answer: Mapping[str, Any]) -> None:
    sys.stdout.write(MARK + json.dumps(answer) + "\n")
    sys.stdout.flush()
