"""Runs in the engine's interpreter: connects to its Ray cluster and looks at each node in one task pinned there. Travels; Python 3.8.

The same requests and answers as of `node`, but an answer holds `nodes`. The task asks for no resources and starts the sampler in an
interpreter of its own, so that nothing of ncdiag stays in Ray's worker.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any, Dict, List, Mapping

from ncdiag.bringup.serve import MARK

TASK_S = 20.0
CONNECT_S = 5.0
_RUN = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from ncdiag.bringup import node, serve
eye = node.Node()
request, py_spy = json.loads(sys.stdin.readline()), sys.stdin.read()
if request.get("memory"):
    eye.remember(request.pop("memory"))
if not serve.find_py_spy(eye) and py_spy:
    serve.brought(py_spy)
answer = eye.look(request)
print(node.MARK + json.dumps({**answer, "memory": eye.memory()}), flush=True)
"""


def ncdiag_look(content: bytes, run: str, request: str, py_spy: str, timeout_s: float) -> str:
    """On the node, in a Ray worker: what the sampler printed."""
    import os
    import subprocess
    import sys

    descriptor = os.memfd_create("ncdiag", 0)
    try:
        while content:
            content = content[os.write(descriptor, content) :]
        path = "/proc/%d/fd/%d" % (os.getpid(), descriptor)
        done = subprocess.run(
            [sys.executable, "-S", "-I", "-c", run, path],
            input=(request + "\n" + py_spy).encode(),
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        return done.stdout.decode("utf-8", "replace") or done.stderr.decode("utf-8", "replace")[-500:]
    except subprocess.TimeoutExpired:
        return "no answer within %g s" % timeout_s
    finally:
        os.close(descriptor)


class Bridge:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.py_spy = ""
        self.ray: Any = None
        self._memory: Dict[str, Any] = {}

    def connect(self, address: str) -> str:
        """Empty when connected, else the reason."""
        if self.ray is not None:
            return ""
        host, colon, port = address.rpartition(":")
        try:
            if colon and port.isdigit() and "://" not in address:
                socket.create_connection((host, int(port)), CONNECT_S).close()
            import ray

            ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
            ray.init(address=address or "auto", namespace="ncdiag", logging_level="error", log_to_driver=False)
        except Exception as error:
            first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            return "cannot reach the Ray cluster at %s: %s" % (address or "auto", first.strip()[:300])
        self.ray, self.references = ray, (ray.put(self.content), ray.put(self.py_spy))
        return ""

    def look(self, request: Mapping[str, Any]) -> List[Dict[str, Any]]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray, waiting, answers = self.ray, {}, []
        for info in ray.nodes():
            name = info["NodeManagerHostname"]
            if not info["Alive"]:
                answers.append({"node": name, "error": "Ray counts this node as dead"})
                continue
            task = ray.remote(ncdiag_look).options(
                num_cpus=0,
                max_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(info["NodeID"], soft=False),
            )
            text = json.dumps({**request, "memory": self._memory.get(info["NodeID"])})
            waiting[task.remote(self.references[0], _RUN, text, self.references[1], TASK_S - 2)] = name, info["NodeID"]
        ready, late = ray.wait(list(waiting), num_returns=len(waiting), timeout=TASK_S)
        for reference in ready:
            try:
                name, node_id = waiting[reference]
                answer = _answer(name, ray.get(reference))
                self._memory[node_id] = answer.pop("memory", None)
                answers.append(answer)
            except ray.exceptions.RayError as error:
                answers.append(
                    {
                        "node": waiting[reference][0],
                        "error": "its Ray task failed: %s" % str(error).strip().splitlines()[0][:300],
                    }
                )
        for reference in late:
            ray.cancel(reference, force=True)
            answers.append({"node": waiting[reference][0], "error": "no answer through Ray within %g s" % TASK_S})
        return answers


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
