"""The words of ncdiag as plain types: what was read, what was concluded, and how sure.

Standard library only, Python 3.8 at run time: this module travels to nodes.
"""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

SCHEMA = 1


class Status(str, enum.Enum):
    """How a probe ended, from best to worst; `unknown` (could not look) is never counted as health."""

    OK = "ok"
    SKIP = "skip"
    UNKNOWN = "unknown"
    WARN = "warn"
    FAIL = "fail"

    @property
    def severity(self) -> int:
        """0 for `ok` up to 4 for `fail`."""
        return _ORDER[self]


_ORDER = {status: number for number, status in enumerate(Status)}


@dataclass(frozen=True)
class Evidence:
    """One line, file value or frame that a conclusion rests on."""

    source: str
    """File, command or process it was read from, e.g. `node0.log` or `/sys/class/net/eth0/mtu`."""
    text: str
    """What was read there, as it stands (redacted)."""
    line: Optional[int] = None
    """Line number in `source`, from 1; None where there are no lines."""


@dataclass(frozen=True)
class Finding:
    """What one probe concluded about one thing."""

    status: Status
    summary: str
    """One sentence: object, numbers, units."""
    where: Mapping[str, Any] = field(default_factory=dict)
    """`node`, and where they apply `device`, `rank`, `peer`, `setting`."""
    observed: Any = None
    expected: Any = None
    source: str = ""
    """The file, command or fact that `observed` was read from."""
    cause: Optional[str] = None
    """A slug of the list of causes; also the name of its playbook."""
    remedy: Optional[str] = None
    probe: str = ""
    """Set by `check`, not by the probe."""
    unit: str = ""
    """What `observed` and `expected` count, where they are bare numbers: `MHz`, `open files`, `bytes`."""

    @property
    def playbook(self) -> Optional[str]:
        return self.cause

    def of(self, probe: str) -> Finding:
        """The same, of that probe."""
        other = object.__new__(Finding)
        other.__dict__.update(
            self.__dict__, probe=probe
        )  # there are tens of thousands of them; dataclasses.replace is slow
        return other

    def as_dict(self) -> Dict[str, Any]:
        """The finding as in the JSON contract; keys without a value are left out."""
        data: Dict[str, Any] = {"status": self.status.value, "summary": self.summary, "where": dict(self.where)}
        if self.observed is not None:
            data["observed"] = self.observed
        if self.expected is not None:
            data["expected"] = self.expected
        if self.unit:
            data["unit"] = self.unit
        data["source"] = self.source
        if self.cause is not None:
            data.update(cause=self.cause, playbook=self.playbook)
        if self.remedy is not None:
            data["remedy"] = self.remedy
        data["probe"] = self.probe
        return data


def _where(node: Optional[str], where: Mapping[str, Any]) -> Dict[str, Any]:
    head = {"node": node} if node is not None else {}
    return {**head, **{key: value for key, value in where.items() if value is not None}}


def ok(
    summary: str,
    node: Optional[str] = None,
    *,
    source: str = "",
    observed: Any = None,
    unit: str = "",
    **where: Any,
) -> Finding:
    """It was read, and it holds."""
    return Finding(Status.OK, summary, _where(node, where), observed, source=source, unit=unit)


def skip(summary: str, node: Optional[str] = None, *, source: str = "", **where: Any) -> Finding:
    """It does not apply here; `summary` says why."""
    return Finding(Status.SKIP, summary, _where(node, where), source=source)


def unknown(
    summary: str,
    node: Optional[str] = None,
    *,
    source: str = "",
    remedy: Optional[str] = None,
    cause: Optional[str] = None,
    **where: Any,
) -> Finding:
    """It could not be looked at; `summary` says why, `remedy` how to make it readable."""
    return Finding(Status.UNKNOWN, summary, _where(node, where), source=source, remedy=remedy, cause=cause)


def warn(
    summary: str,
    node: Optional[str] = None,
    *,
    source: str = "",
    observed: Any = None,
    expected: Any = None,
    cause: Optional[str] = None,
    remedy: Optional[str] = None,
    unit: str = "",
    **where: Any,
) -> Finding:
    """It works, but slower or less surely than it could."""
    return Finding(Status.WARN, summary, _where(node, where), observed, expected, source, cause, remedy, unit=unit)


def fail(
    summary: str,
    node: Optional[str] = None,
    *,
    source: str = "",
    observed: Any = None,
    expected: Any = None,
    cause: Optional[str] = None,
    remedy: Optional[str] = None,
    unit: str = "",
    **where: Any,
) -> Finding:
    """The engine will not start, or not work, like this."""
    return Finding(Status.FAIL, summary, _where(node, where), observed, expected, source, cause, remedy, unit=unit)


@dataclass(frozen=True)
class Plan:
    """What is meant to run; every field may be unknown (None or empty)."""

    tp: Optional[int] = None
    pp: Optional[int] = None
    dp: Optional[int] = None
    nodes: Optional[int] = None
    gpus_per_node: Optional[int] = None
    model: Optional[str] = None
    """Path of the model as the engine will be given it."""
    ports: Tuple[int, ...] = ()
    """TCP ports that the engine, the store and Ray want."""
    nccl_version: Optional[str] = None
    """`2.27.5`; where the library cannot be found, the version to judge by."""

    @property
    def ranks(self) -> Optional[int]:
        """World size TP x PP x DP, None when no size was given."""
        if self.tp is None and self.pp is None and self.dp is None:
            return None
        return (self.tp or 1) * (self.pp or 1) * (self.dp or 1)


@dataclass
class NodeFacts:
    """What one node answered."""

    node: str
    facts: Dict[str, Any] = field(default_factory=dict)
    """Probe id -> the plain JSON that its `collect` returned."""
    errors: Dict[str, str] = field(default_factory=dict)
    """Probe id -> why its facts are missing."""
    meta: Dict[str, Any] = field(default_factory=dict)
    """`hostname`, `python`, `uid`, `collected_at` (seconds since 1970), `recorded`."""
    unreachable: Optional[str] = None
    """Why the node gave nothing at all; None when it answered."""


@dataclass
class Snapshot:
    """The facts of all nodes at one time, with the plan."""

    nodes: Dict[str, NodeFacts] = field(default_factory=dict)
    plan: Plan = field(default_factory=Plan)
    _kept: Dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, key: Tuple[Any, ...], work: Callable[[], Any]) -> Any:
        """What `work` gives, worked out once for `key`: for what several probes derive from the same facts. It must not be changed by them."""
        if key not in self._kept:
            self._kept[key] = work()
        return self._kept[key]

    def each(self, probe: str) -> Iterator[Tuple[str, Any]]:
        """`(node, facts)` of every node that has facts of `probe`, in the order of the nodes."""
        for name, node in self.nodes.items():
            if probe in node.facts:
                yield name, node.facts[probe]

    def facts(self, node: str, probe: str) -> Any:
        """The facts of `probe` on `node`, None where there are none."""
        return self.nodes[node].facts.get(probe) if node in self.nodes else None

    def as_dict(self) -> Dict[str, Any]:
        return {
            "schema": SCHEMA,
            "kind": "snapshot",
            "plan": asdict(self.plan),
            "nodes": {name: asdict(node) for name, node in self.nodes.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Snapshot:
        """Raises ValueError when `data` is no snapshot of a schema that is known here."""
        if not isinstance(data, Mapping) or data.get("kind") != "snapshot":
            raise ValueError('not a snapshot (no "kind": "snapshot")')
        if data.get("schema") != SCHEMA:
            raise ValueError("snapshot schema %r; this ncdiag reads %d" % (data.get("schema"), SCHEMA))
        try:
            plan = dict(data.get("plan") or {})
            plan["ports"] = tuple(plan.get("ports") or ())
            nodes = {str(name): NodeFacts(**node) for name, node in data["nodes"].items()}
            return cls(nodes, Plan(**plan))
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError("damaged snapshot: %s" % error) from error


Judge = Callable[[Snapshot], Iterable[Finding]]
Collect = Callable[[Any], Any]


@dataclass(frozen=True)
class Probe:
    """What must hold, how it is read and how it is judged."""

    id: str
    title: str
    """What must hold, as a statement: "RDMA ports are up and equally fast"."""
    judge: Optional[Judge] = None
    collect: Optional[Collect] = None
    """`collect(host) -> facts`: reads through `host` only, returns plain JSON, no judgement in it."""
    needs: Sequence[str] = ()
    """Ids of probes whose facts `judge` reads besides its own."""
    timeout_s: float = 10.0
    """How long `collect` may take on one node."""


@dataclass
class Cause:
    """One entry of the ranked list that logs, stacks and facts lead to."""

    cause: str
    confidence: str
    """`sure`, `likely` or `possible`."""
    summary: str
    where: Dict[str, Any] = field(default_factory=dict)
    """`node`, `rank`, `device`, `peer`, `stage` where they are known."""
    evidence: List[Evidence] = field(default_factory=list)
    secondary: List[Evidence] = field(default_factory=list)
    """What follows from it: errors that are not the cause."""
    remedy: str = ""
    also_seen: List[Evidence] = field(default_factory=list)
    """Errors that stand beside it: nothing shows that they follow from it."""

    @property
    def playbook(self) -> str:
        return self.cause

    def as_dict(self) -> Dict[str, Any]:
        data = asdict(self)
        data["playbook"] = self.playbook
        for key in ("evidence", "secondary", "also_seen"):
            data[key] = [{k: v for k, v in item.items() if v is not None} for item in data[key]]
        return data


CONFIDENCES = ("possible", "likely", "sure")


@dataclass
class Frame:
    """One frame of a stack."""

    name: str
    file: str = ""
    line: int = 0
    native: bool = False


@dataclass
class Socket:
    """One TCP socket of a process, as the kernel tells it."""

    state: str
    """`LISTEN`, `SYN_SENT`, `ESTABLISHED`, `CLOSE_WAIT` …"""
    local: str
    """`address:port`; IPv6 addresses in brackets."""
    remote: str = ""
    send_queue: int = 0
    receive_queue: int = 0
    retransmits: int = 0
    """Time-outs since the last answer; over the whole window, where it was read twice."""
    moved: Optional[bool] = None
    """Whether its queues changed in the window; None where it was read once."""
    bytes: Optional[int] = None
    """Received, or sent and acknowledged, in the window; None where the kernel does not say."""


@dataclass
class Progress:
    """What moved between two looks at a process, `window_s` apart."""

    window_s: float
    cpu_s: float = 0.0
    read_bytes: int = 0
    """Bytes read from storage (`/proc/PID/io` read_bytes)."""
    rchar: int = 0
    """Bytes read through system calls (`rchar`)."""
    written_bytes: int = 0
    rss_bytes: int = 0
    """Change of resident memory; may be negative."""
    page_faults: int = 0
    gpu_memory_bytes: int = 0
    gpu_utilisation: Optional[float] = None
    """Percent of the window; None where no GPU could be asked."""
    frames_changed: Optional[bool] = None
    """Whether the stacks differ; None where they could not be read twice."""
    io_known: bool = True
    """False: /proc/PID/io could not be read, so `read_bytes`, `rchar` and `written_bytes` say nothing."""
    children_cpu_s: float = 0.0
    """CPU time of its helper children (compilers, loaders), which are not ranks themselves."""
    children_bytes: int = 0
    """Bytes that the busiest of its helper children read and wrote, where it waits for them."""
    woken: Optional[int] = None
    """How often its main thread woke and went to sleep again in the part of the window in which nobody paused it; None where that is not known."""
    own_rchar: int = 0
    """Bytes that its main thread itself read."""
    heard_bytes: int = 0
    """Bytes that went over the connections that its main thread waits at."""


@dataclass
class RankState:
    """One process of the engine at one time: everything that the hang inference looks at."""

    pid: int
    node: str
    role: str = "unknown"
    """`api-server`, `engine-core`, `worker`, `headless`, `launcher`, `ray-worker`, `script`, `unknown`."""
    rank: Optional[int] = None
    world_size: Optional[int] = None
    local_rank: Optional[int] = None
    title: str = ""
    """Process title or command line (redacted)."""
    state: str = ""
    """The letter in /proc/PID/stat: R, S, D, T, t, Z, X; `gone` when it ended."""
    wchan: str = ""
    syscall: str = ""
    kernel_stack: List[str] = field(default_factory=list)
    age_s: Optional[float] = None
    threads: List[Dict[str, Any]] = field(default_factory=list)
    """`{"name", "active", "main": bool, "frames": [Frame…]}`, innermost frame first; of threads beside the main one `call`, as in
    `RankState.call`."""
    stack_error: Optional[str] = None
    """Why there are no stacks, or none with native frames."""
    sockets: List[Socket] = field(default_factory=list)
    progress: Optional[Progress] = None
    settings: Dict[str, str] = field(default_factory=dict)
    """Variables of its environment that matter (NCCL, gloo, vLLM, torch, Ray, MASTER_*), redacted."""
    log_tail: List[str] = field(default_factory=list)
    gpu: Dict[str, Any] = field(default_factory=dict)
    parent: Optional[int] = None
    below: Optional[int] = None
    """The rank that it is a program of: one further up that has the same rank in its environment; None where there is none."""
    log_source: str = ""
    """The file that `log_tail` was read from."""
    ns_pid: Optional[int] = None
    """Its pid inside its container, as its own log lines have it; None where that is `pid`."""
    frozen: Optional[bool] = None
    """Whether its cgroup is frozen; None where that could not be read."""
    tracer: Optional[int] = None
    """The debugger that holds it; None where there is none."""
    netns: str = ""
    """Its network namespace, `net:[4026531840]`: addresses and ports compare only within one."""
    children: List[str] = field(default_factory=list)
    """Names of its helper children (compilers, loaders), which are not ranks themselves."""
    child_places: List[str] = field(default_factory=list)
    """Where they are, where it only waits for them: `4711 (pt_data_worker) is at load (data.py:7)`."""
    halted_children: List[str] = field(default_factory=list)
    """Those of them that are stopped, `4711 (pt_data_worker)`."""
    variables: Dict[str, str] = field(default_factory=dict)
    """Local variables that were asked for: store host, port, rank, world size. No others are ever kept."""
    rank_source: str = ""
    """What says its rank: `environment`, `title`, `log`, `locals`, `order`."""
    notes: List[str] = field(default_factory=list)
    """What could not be read of it, each with the way out."""
    silent_s: Optional[float] = None
    """How long nothing was written to its log; None where it has no log file."""
    lock: Dict[str, Any] = field(default_factory=dict)
    """The file lock that it waits for: `kind`, `file`, `holder` (pid, None where not known), `command`; empty where it waits for none."""
    call: Dict[str, Any] = field(default_factory=dict)
    """The system call that its main thread sleeps in: `name`, `left_s` (seconds that it lasts at most), `endless`, `sleeps`, of one that opens a file `path`, of one that reads `source`
    (`file`, `terminal`, `writers`, `all`), of one that writes `sink` (`file`, `readers` with their states, `all`), of either `stream` (`standard output`) where it is one of those, of TCP sockets that it waits at `listens` (`address:port`) and `hears` (local and remote address), of name servers `asks` (`address:port`); empty where it sleeps in none, or that was not read."""
    ended: str = ""
    """How a zombie ended: `with exit code 3`, `by signal 9 (SIGKILL)`; empty where it runs, or that may not be read."""
    still_s: Optional[float] = None
    """For how long no thread of it that runs the program has run, or nothing of it moved; None where that is not known."""

    asleep_s: Optional[float] = None
    """Seconds of the look itself in which none of these threads ran; None where one did, or that is not known."""

    def as_dict(self) -> Dict[str, Any]:
        """Plain JSON, which `from_dict` reads."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RankState:
        """Keys of a newer ncdiag are passed over. Raises ValueError when `data` is no rank state."""
        try:
            known = {key: value for key, value in data.items() if key in cls.__dataclass_fields__}
            known["threads"] = [
                {**thread, "frames": [Frame(**frame) for frame in thread["frames"]]}
                for thread in known.get("threads", ())
            ]
            known["sockets"] = [Socket(**item) for item in known.get("sockets", ())]
            if known.get("progress") is not None:
                known["progress"] = Progress(**known["progress"])
            return cls(**known)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError("damaged rank state: %s" % error) from error
