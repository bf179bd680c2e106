"""Runs of the vLLM lab (`samples.jsonl.gz`, `snap-end.txt`, `events.json`, `cmds.txt`, logs) as lists of RankState.

What the lab did not measure is not made up: CPU time is taken from how often the main thread was active, reads and
memory are left at 0, and sockets are known at the end of the run only.
"""

from __future__ import annotations

import gzip
import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ncdiag.model import Frame, Progress, RankState, Socket

_FRAME = re.compile(r"^(?P<name>.*) \((?P<file>.*?)(?::(?P<line>\d+))?\)$")
_STATES = {
    "sleeping": "S",
    "running": "R",
    "disk-sleep": "D",
    "stopped": "T",
    "tracing-stop": "t",
    "zombie": "Z",
    "idle": "I",
}
_TCP = {"ESTAB": "ESTABLISHED"}
_SETTINGS = re.compile(r"^(VLLM_HOST_IP|VLLM_.*EXECUTOR.*|GLOO_|NCCL_|MASTER_|RAY_ADDRESS|TORCH_)")
_AUXILIARY = (
    "resource_tracker",
    "dashboard",
    "log_monitor",
    "autoscaler",
    "util.client",
    "DashboardAgent",
    "RuntimeEnvAgent",
    "runtime_env/agent",
    "gcs_server",
    "ray start",
    "default_worker",
    "models.registry",
    "slowfs",
    "forkserver",
    "/monitor.py",
)


@dataclass
class Run:
    """One run as it lies in its folder."""

    folder: Path
    samples: list[dict[str, Any]] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    starts: list[dict[str, Any]] = field(default_factory=list)
    """`host`, `env`, `argv` of each process that was started, in order."""
    snap: str = ""

    @property
    def end(self) -> float:
        """The time of the last sample, seconds from the start."""
        return max((row["t"] for row in self.samples), default=0.0)


def _from_snap(snap: str, when: float) -> list[dict[str, Any]]:
    """Samples out of the dump at the end (py-spy's text), for runs that were not sampled."""
    found = []
    for block in re.split(r"^(?==== pid=)", snap, flags=re.M):
        head = re.match(r"=== pid=(\d+) ppid=(\d+) name=\S+ st=(\S+) .*? cmd=(.*)", block)
        if not head:
            continue
        threads: list[dict[str, Any]] = []
        for line in block.splitlines()[1:]:
            thread = re.match(r'Thread \d+ \((.*?)\): "(.*)"', line)
            if thread:
                threads.append({"n": thread[2], "act": "active" in thread[1], "gil": False, "fr": []})
            elif threads and re.match(r" {4}\S", line) and _FRAME.match(line.strip()):
                threads[-1]["fr"].append(line.strip())
            elif line.startswith(("sock ", "--- ")):
                break
        found.append(
            {
                "t": when,
                "pid": int(head[1]),
                "ppid": int(head[2]),
                "title": head[4].strip(),
                "st": head[3],
                "err": None,
                "threads": threads,
            }
        )
    return found


def read(folder: Path) -> Run:
    run = Run(folder)
    if (folder / "samples.jsonl.gz").is_file():
        with gzip.open(folder / "samples.jsonl.gz", "rt", errors="replace") as lines:
            run.samples = [json.loads(line) for line in lines if line.startswith("{") and line.rstrip().endswith("}")]
    if (folder / "events.json").is_file():
        run.events = [(float(when), str(what)) for when, what in json.loads((folder / "events.json").read_text())]
    if (folder / "cmds.txt").is_file():
        run.starts = _commands((folder / "cmds.txt").read_text())
    if (folder / "snap-end.txt").is_file():
        run.snap = (folder / "snap-end.txt").read_text(errors="replace")
    if not run.samples:
        run.samples = [row for row in _from_snap(run.snap, 0.0) if "python" in row["title"] or "::" in row["title"]]
    return run


def _commands(text: str) -> list[dict[str, Any]]:
    lines, starts = text.splitlines(), []
    for head, argv in zip(lines[::2], lines[1::2], strict=False):
        match = re.match(r"host=(\S+) env=(.*)", head)
        if match:
            host = 0 if match[1] == "None" else int(match[1])
            starts.append({"host": host, "env": json.loads(match[2]), "argv": shlex.split(argv)})
    return starts


def log_lines(run: Run) -> dict[str, list[str]]:
    """Log name (`node0.log`) -> its lines."""
    logs = {}
    for path in sorted(run.folder.glob("*.log.gz")):
        with gzip.open(path, "rt", errors="replace") as lines:
            logs[path.name[:-3]] = [line.rstrip("\n") for line in lines]
    return logs


def states(run: Run, at: float | None = None, gone: bool = True) -> list[RankState]:
    """Every process of the engine at `at` seconds (the end of the run when None).

    `gone` says whether workers and their parents that had ended by then are listed, as one who watched would know.
    """
    moment = run.end if at is None else at
    by_pid: dict[int, list[dict[str, Any]]] = {}
    for row in run.samples:
        if row["t"] <= moment:
            by_pid.setdefault(row["pid"], []).append(row)
    live = {row["pid"] for row in run.samples if row["t"] > moment - 8.0} & set(by_pid)
    if at is None and run.snap:
        live &= _in_snap(run)
    mains = _mains(run)
    parents = {pid: rows[-1]["ppid"] for pid, rows in by_pid.items()}
    found = []
    for pid, rows in by_pid.items():
        title = _title(rows)
        role = _role(pid, title, parents, by_pid, mains)
        if role is None or (pid not in live and not gone):
            continue
        found.append(_state(run, pid, rows, role, title, parents, mains, pid in live))
    found += _stopped_helpers(run) if at is None else []
    if at is None:
        _add_sockets(found, run.snap)
    _add_logs(found, run, moment)
    return found


def _in_snap(run: Run) -> set[int]:
    return {int(pid) for pid in re.findall(r"^=== pid=(\d+) ", run.snap, re.M)}


def _mains(run: Run) -> dict[int, int]:
    """pid -> index in `starts`, of the processes that the lab started itself."""
    pids = [int(match[1]) for _, what in run.events if (match := re.match(r"start \S+ host=\S+ pid=(\d+)", what))]
    return {pid: index for index, pid in enumerate(pids)}


def _title(rows: list[dict[str, Any]]) -> str:
    return str(rows[-1]["title"]).strip() or next((str(row["title"]) for row in reversed(rows) if row["title"]), "")


def _role(pid: int, title: str, parents: dict[int, int], by_pid: dict[int, Any], mains: dict[int, int]) -> str | None:
    if any(word in title for word in _AUXILIARY):
        return None
    if title.startswith("VLLM::EngineCore"):
        return "engine-core"
    if title.startswith("VLLM::Worker"):
        return "worker"
    if title.startswith("ray::"):
        return "ray-worker" if "Worker" in title else None
    if "vllm serve" in title or "bin/vllm" in title or pid in mains:
        return "headless" if "--headless" in title else "api-server"
    if "spawn_main" in title:
        parent = _title(by_pid[parents[pid]]) if parents[pid] in by_pid else ""
        if parent.startswith("VLLM::EngineCore") or "--headless" in parent:
            return "worker"
        return "engine-core" if "vllm" in parent else None
    return None


def _host(pid: int, parents: dict[int, int], mains: dict[int, int], run: Run) -> int:
    seen = set()
    while pid not in mains and pid in parents and pid not in seen:
        seen.add(pid)
        pid = parents[pid]
    index = mains.get(pid)
    return int(run.starts[index]["host"]) if index is not None and index < len(run.starts) else 0


def _ray_hosts(run: Run) -> dict[int, int]:
    """pid -> host of Ray's workers, by the host whose sockets they have."""
    return {
        int(pid): "abcdefgh".index(host) for host, text in _sections(run.snap) for pid in re.findall(r"pid=(\d+)", text)
    }


def _sections(snap: str) -> list[tuple[str, str]]:
    return re.findall(r"^--- ss (\w+)\n(.*?)(?=^--- ss|\Z)", snap, re.M | re.S)


def _start(host: int, run: Run) -> dict[str, Any]:
    """What was started on the host as vLLM; Ray workers take their size from the one that serves."""
    serving = [start for start in run.starts if "serve" in start["argv"]]
    here = [start for start in serving if start["host"] == host]
    return (here or serving or [{"host": host, "env": {}, "argv": []}])[0]


def _number(argv: list[str], *flags: str, default: int = 1) -> int:
    return next((int(argv[argv.index(flag) + 1]) for flag in flags if flag in argv), default)


def _state(
    run: Run,
    pid: int,
    rows: list[dict[str, Any]],
    role: str,
    title: str,
    parents: dict[int, int],
    mains: dict[int, int],
    live: bool,
) -> RankState:
    host = _host(pid, parents, mains, run)
    if role == "ray-worker":
        host = _ray_hosts(run).get(pid, host)
    start = _start(host, run)
    argv = start["argv"]
    if pid in mains:
        argv = run.starts[mains[pid]]["argv"]
        role = "headless" if "--headless" in argv else role
        title = " ".join(argv)
    world = _number(argv, "--tensor-parallel-size", "-tp") * _number(argv, "--pipeline-parallel-size", "-pp")
    env: dict[str, Any] = next((s["env"] for s in run.starts if s["host"] == host and "ray" in s["argv"][1]), {})
    settings = {
        k: v
        for k, v in {**start["env"], **(env if role == "ray-worker" else {})}.items()
        if v is not None and _SETTINGS.match(k)
    }
    last = rows[-1]
    state = RankState(
        pid,
        f"node-{'abcdefgh'[host]}",
        role,
        title=title,
        world_size=world,
        state=_STATES.get(last["st"], "S") if live else "gone",
        parent=parents.get(pid),
        settings=settings,
        age_s=round(last["t"] - rows[0]["t"], 1),
    )
    if role in ("worker", "ray-worker"):
        state.rank = _rank(title, _number(argv, "--tensor-parallel-size", "-tp"))
    if live:
        state.threads = [_thread(thread) for thread in last["threads"]]
        state.stack_error = last.get("err")
        state.progress = _progress(rows)
    return state


def _rank(title: str, tp: int) -> int | None:
    tensor, pipeline = re.search(r"_TP(\d+)", title), re.search(r"_PP(\d+)", title)
    if not tensor and not pipeline:
        return None
    return (int(pipeline[1]) if pipeline else 0) * tp + (int(tensor[1]) if tensor else 0)


def _thread(thread: dict[str, Any]) -> dict[str, Any]:
    frames = []
    for text in thread["fr"]:
        match = _FRAME.match(text)
        frames.append(Frame(match["name"], match["file"], int(match["line"] or 0)) if match else Frame(text))
    return {"name": thread["n"], "active": thread["act"], "main": thread["n"] == "MainThread", "frames": frames}


def _progress(rows: list[dict[str, Any]]) -> Progress | None:
    """Over the last samples that are together at least 2 s apart."""
    recent = (
        [row for row in rows if rows[-1]["t"] - row["t"] <= 7.0][-5:]
        if len(rows) < 2 or (rows[-1]["t"] - rows[-2]["t"] <= 7.0)
        else rows[-2:]
    )
    if len(recent) < 2:
        return None
    window = recent[-1]["t"] - recent[0]["t"]
    active = [any(t["act"] for t in row["threads"] if t["n"] == "MainThread") for row in recent]
    stacks = [[t["fr"] for t in row["threads"]] for row in recent if row["threads"]]
    changed = any(stack != stacks[0] for stack in stacks[1:]) if len(stacks) > 1 else None
    return Progress(
        round(window, 2), cpu_s=round(window * sum(active) / len(active), 2), frames_changed=changed, io_known=False
    )


def _stopped_helpers(run: Run) -> list[RankState]:
    """Processes of the engine's Ray that are no Python and were seen stopped: a raylet."""
    found = []
    for pid, name, state, command in re.findall(
        r"^=== pid=(\d+) ppid=\d+ name=(\S+) st=(\S+) .*? cmd=(.*)$", run.snap, re.M
    ):
        if state == "stopped" and name in ("raylet", "gcs_server"):
            host = "a"
            for section, text in _sections(run.snap):
                if f"pid={pid}," in text:
                    host = section
            found.append(RankState(int(pid), f"node-{host}", "unknown", title=command, state="T"))
    return found


def _add_sockets(found: list[RankState], snap: str) -> None:
    for host, text in _sections(snap):
        for line in text.splitlines()[1:]:
            fields = line.split(None, 5)
            if len(fields) < 5:
                continue
            pids = {int(pid) for pid in re.findall(r"pid=(\d+)", fields[5] if len(fields) > 5 else "")}
            tcp = _TCP.get(fields[0], fields[0].replace("-", "_"))
            socket = Socket(
                tcp, fields[3], "" if fields[4].endswith(":*") else fields[4], int(fields[2]), int(fields[1])
            )
            for state in found:
                if state.pid in pids and state.node == f"node-{host}":
                    state.sockets.append(socket)


def _add_logs(found: list[RankState], run: Run, moment: float) -> None:
    """The last 40 lines of each process's own in the log of its node."""
    logs = log_lines(run)
    for state in found:
        lines = logs.get(f"node{'abcdefgh'.index(state.node[-1])}.log", [])
        if state.role == "ray-worker":
            lines = [line for name in logs if name.startswith("node") for line in logs[name]]
        own = [line for line in lines if f"pid={state.pid})" in line or f"pid={state.pid}," in line]
        for line in own:
            match = re.search(r"world_size=(\d+) rank=(\d+) local_rank=(\d+)", line)
            if match and state.role in ("worker", "ray-worker"):
                state.world_size, state.rank, state.local_rank = int(match[1]), int(match[2]), int(match[3])
        if moment >= run.end:
            state.log_tail = own[-40:]
