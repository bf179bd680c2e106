"""The agent on a node: requests (JSON) a line on stdin, answers a line on stdout, gone when stdin ends. Travels; Python 3.8."""

from __future__ import annotations

import base64
import json
import os
import sys
import zlib
from typing import Any, Mapping, Optional

from ncdiag.bringup.node import MARK, Node
from ncdiag.processes import stacks
from ncdiag.processes.machine import Machine


def brought(packed: str) -> None:
    """A py-spy that came along, into memory that has no name on disk."""
    descriptor = os.memfd_create("ncdiag-py-spy", 0)
    raw = zlib.decompress(base64.b64decode(packed))
    while raw:
        raw = raw[os.write(descriptor, raw) :]
    stacks.PROGRAM = "/proc/%d/fd/%d" % (os.getpid(), descriptor)


def find_py_spy(node: Node) -> Optional[str]:
    """py-spy in PATH, or beside the interpreter of a process of the engine."""
    if stacks.py_spy():
        return stacks.py_spy()
    machine = Machine(node.host)
    for proc in machine.pythons():
        beside = os.path.join(
            os.path.dirname(proc.argv[0]) if proc.argv and proc.argv[0].startswith("/") else os.path.dirname(proc.exe),
            "py-spy",
        )
        if os.access(beside, os.X_OK):
            stacks.PROGRAM = beside
            return beside
    return None


def serve() -> None:
    """The agent. First it says what it lacks, then it answers requests until stdin ends."""
    node = Node()
    _say({"ready": node.host.node, "machine": os.uname().machine, "needs": [] if find_py_spy(node) else ["py-spy"]})
    for line in sys.stdin:
        request = json.loads(line)
        if "py_spy" in request:
            brought(request["py_spy"])
            continue
        try:
            _say(node.look(request))
        except Exception as error:  # the fence of this node: the controller says why it has nothing of it
            _say({"node": node.host.node, "error": "%s: %s" % (type(error).__name__, error)})


def _say(answer: Mapping[str, Any]) -> None:
    sys.stdout.write(MARK + json.dumps(answer) + "\n")
    sys.stdout.flush()
