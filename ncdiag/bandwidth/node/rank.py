"""One forked rank, seen from the agent."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import signal
import sys
import time
import traceback
import zlib
from typing import Any, Dict, List

from ncdiag.bandwidth.node import worker
from ncdiag.bandwidth.node.words import say

LOG_BYTES = 1 << 20
PR_SET_PDEATHSIG = 1


class Rank:
    """One forked rank, seen from the agent. Raises OSError where no process can be had."""

    def __init__(self, job: str, spec: Dict[str, Any], limit_s: float) -> None:
        self.job, self.rank, self.stage = job, int(spec["rank"]), "starting"
        self.deadline = time.monotonic() + limit_s
        self.log, self.dropped = b"", 0
        self.partial = b""
        self.late = False
        self.topology = -1
        dumper = spec.pop("topology", None)
        if (
            dumper is not None
        ):  # on every rank of the node: from 2.24 on they exchange what they see for the dump, and wait for all
            path = os.devnull
            if dumper == self.rank:
                self.topology = os.memfd_create("topology", 0)  # no file with a name
                path = "/proc/self/fd/%d" % self.topology
            spec["env"].update(NCCL_TOPO_DUMP_FILE=path, NCCL_TOPO_DUMP_FILE_RANK=str(dumper))
        self.events, tell = os.pipe()
        self.output, write = os.pipe()
        agent = os.getpid()
        try:
            self.pid = os.fork()
        except OSError:
            for number in (*self.descriptors(), tell, write):
                os.close(number)
            raise
        if self.pid == 0:
            os.close(self.events)
            os.close(self.output)
            _be_rank(spec, agent, tell, write)
        os.close(tell)
        os.close(write)

    def descriptors(self) -> List[int]:
        return [number for number in (self.events, self.output) if number >= 0]

    def read(self, descriptor: int) -> None:
        data = os.read(descriptor, 1 << 16)
        if not data:
            os.close(descriptor)
            if descriptor == self.events:
                self.events = -1
            else:
                self.output = -1
        elif descriptor == self.output:
            room = LOG_BYTES - len(self.log)
            self.log += data[:room]
            self.dropped += max(len(data) - room, 0)
        else:
            *lines, self.partial = (self.partial + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                self.stage = message.get("stage", self.stage)
                say({**message, "job": self.job, "rank": self.rank})

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def finish(self) -> None:
        _, state = os.waitpid(self.pid, 0)
        status = -os.WTERMSIG(state) if os.WIFSIGNALED(state) else os.WEXITSTATUS(state)
        if self.topology >= 0:
            os.lseek(self.topology, 0, os.SEEK_SET)
            with os.fdopen(self.topology, "rb") as file:
                xml = file.read(1 << 21).decode("utf-8", "replace")
            say({"event": "topology", "job": self.job, "rank": self.rank, "xml": xml})
        say_ended(self.job, self.rank, status, self.stage, self.late, self.log, self.dropped)


def say_ended(
    job: str, rank: int, status: int, stage: str, late: bool = False, log: bytes = b"", dropped: int = 0
) -> None:
    """The last word of a rank; `status` as subprocess has it, `dropped` bytes of its log are not in `log`."""
    packed = base64.b64encode(zlib.compress(log)).decode()
    last = {"status": status, "stage": stage, "late": late, "log": packed, "log_dropped": dropped}
    say({"event": "ended", "job": job, "rank": rank, **last})


def _be_rank(spec: Dict[str, Any], agent: int, events: int, output: int) -> None:
    """In the forked process: never returns. `agent` is the process that forked it: an agent that has ended before the kernel was asked for the
    signal is another parent by now."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if os.getppid() != agent:
            os._exit(1)
        for name, value in spec.get("env", {}).items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

        def emit(message: Dict[str, Any]) -> None:
            os.write(events, json.dumps(message).encode() + b"\n")

        worker.run(spec, emit)
        status = 0
    except BaseException as error:  # the fence: whatever a rank raises becomes data
        with contextlib.suppress(OSError):
            traceback.print_exc()
            sys.stderr.flush()
            text = "%s: %s" % (type(error).__name__, str(error).strip()[:2000])
            os.write(events, json.dumps({"event": "error", "text": text}).encode() + b"\n")
    finally:
        os._exit(status)
