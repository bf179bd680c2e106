"""py-spy dumps, text and JSON: which rank stands outside the collective that the others wait in.

Source: `py-spy dump` and `py-spy dump --json` of 0.3 and 0.4; several dumps may follow each other, with headings between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line
from ncdiag.model import Evidence, Frame

_THREAD = re.compile(r"^\s*Thread (?P<id>0x[0-9A-Fa-f]+|\d+)(?: \((?P<state>[\w+]+)\))?:? ?\"?(?P<name>[^\"]*)\"?\s*$")
_FRAME = re.compile(r"^\s{2,}(?P<name>\S.*?) \((?P<file>[^()]*?)(?::(?P<line>\d+))?\)\s*$")
_PROCESS = re.compile(r"^Process (?P<pid>\d+): (?P<title>.*)$")
_DETAIL = re.compile(r"^\s{8,}")

WAITS = re.compile(
    r"^(?:\w+\.)*(?:broadcast\w*|all_reduce\w*|allreduce\w*|all_gather\w*|reduce_scatter\w*|barrier|monitored_barrier|recv|send|batch_isend_irecv|all_to_all\w*|gather\w*|scatter\w*"
    r"|reduce|synchronize|_new_process_group_helper|new_group|_create_c10d_store|ncclCommInitRank|init_process_group|wait_until_ready|dequeue|acquire_read|_store_based_barrier|recv_object_list)$")
_DISTRIBUTED = re.compile(r"torch/distributed/|pynccl|shm_broadcast|parallel_state|mpu/|torch/cuda/|communication|p2p\.py|megatron/core|rendezvous|device_communicators")
_LOADS = re.compile(r"safetensors_weights_iterator|load_weights|weight_utils|download_weights|get_lock|_load_state_dict|load_model\b")
_IDLE = re.compile(r"worker_busy_loop|run_busy_loop|_process_input_queue|run_forever|run_until_complete|uvloop|process_output_sockets|process_input_sockets|monitor_|_bootstrap_inner|wait_for_engine_startup|wait_for_ready|main_loop")
LIMIT = 20_000  # stacks kept


@dataclass
class Stack:
    thread: str
    name: str
    heading: str
    """The line that named node or process before it."""
    line: Line
    frames: list[Frame] = field(default_factory=list)
    pid: int | None = None
    title: str = ""
    twins: list[str] = field(default_factory=list)
    """Threads printed with the same stack."""

    @property
    def main(self) -> bool:
        return "MainThread" in self.name or not self.name


class Stacks:
    """Threads and frames of all dumps."""

    triggers = ("Thread ", "Process ")

    def __init__(self) -> None:
        self.found: list[Stack] = []
        self._heading = ""
        self._process: tuple[int | None, str] = (None, "")
        self._current: Stack | None = None
        self._waiting: list[Stack] = []
        self._blank = 0

    def take(self, line: Line) -> bool:
        text = line.text.rstrip()
        process, thread = _PROCESS.match(text), _THREAD.match(text)
        if process:
            self._process = (int(process["pid"]), process["title"][:200])
        elif thread and (thread["state"] or thread["name"]):
            if self._current is not None and not self._current.frames:
                self._waiting.append(self._current)
            elif self._current is not None:
                self._waiting = []
            pid, title = self._process
            self._current = Stack(thread["id"], thread["name"], self._heading, line, pid=pid, title=title)
            if len(self.found) < LIMIT:
                self.found.append(self._current)
        elif self._current is not None and (frame := _FRAME.match(text)) and not (_DETAIL.match(text) and self._current.frames and text.strip().endswith(":")):
            self._current.frames.append(Frame(frame["name"], frame["file"], int(frame["line"] or 0)))
            for twin in self._waiting:
                twin.frames = self._current.frames
        elif text and not text.startswith((" ", "\t")):
            self._heading = text.strip().rstrip(":")[:80]
            self._blank += 1
            return self._blank < 40
        self._blank = 0 if text.startswith((" ", "\t")) else self._blank
        return True

    def end(self, source: str) -> None:
        self._heading, self._process, self._current, self._waiting, self._blank = "", (None, ""), None, [], 0

    def ranks(self) -> list[Stack]:
        """Main threads that have frames: one a rank, mostly."""
        return [stack for stack in self.found if stack.main and stack.frames]

    def signals(self) -> Iterator[Signal]:
        stacks = [stack for stack in self.ranks() if not any(_IDLE.search(frame.name) for frame in stack.frames[:6])]
        waiting = [stack for stack in stacks if _waits(stack)]
        outside = [stack for stack in stacks if not _waits(stack)]
        if waiting and outside and len(outside) <= len(waiting):
            first = outside[0]
            frame = first.frames[0]
            if any(_LOADS.search(frame.name + " " + frame.file) for frame in first.frames[:8]):
                evidence = [Evidence(stack.line.source, _short(stack), stack.line.number) for stack in [first, waiting[0]]]
                yield Signal("storage-slow", Says.HINT, f"{first.thread} still loads weights ({frame.name}) while the others wait: slow or stuck, its bytes read tell", evidence, {"pid": first.pid}, order=first.line.order)
                yield Signal("slow-load-peer-timeout", Says.HINT, f"{first.thread} still loads weights while the others wait for it", evidence, {"pid": first.pid}, order=first.line.order + 0.5)
                return
            names = ", ".join(stack.thread for stack in outside[:4])
            evidence = [Evidence(stack.line.source, _short(stack), stack.line.number) for stack in [*outside[:3], *waiting[:3]]]
            node = {"node": first.heading} if re.match(r"(?i)node\b|host\b", first.heading) else {}
            yield Signal("rank-stuck-outside-collective", Says.STRONG,
                         f"{names} stands in {frame.name} ({frame.file}) while {len(waiting)} others wait in collectives", evidence,
                         {**node, "pid": first.pid or (int(first.thread) if first.thread.isdigit() else None)}, order=first.line.order)


def _waits(stack: Stack) -> bool:
    """Whether the innermost frames stand in a collective, a rendez-vous or a message queue."""
    return any(WAITS.match(frame.name) and _DISTRIBUTED.search(frame.file) for frame in stack.frames[:5])


def _short(stack: Stack) -> str:
    return f"Thread {stack.thread}: " + " < ".join(f"{frame.name} ({frame.file}:{frame.line})" for frame in stack.frames[:4])
