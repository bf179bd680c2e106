"""The stages of a start-up in one order, for every executor: what comes earlier has less progress behind it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One step from the first instruction of a process to a rank that serves."""

    name: str
    """The word in JSON and tables."""
    title: str
    """What a process in it does; completes "rank 3 …"."""
    works: bool = False
    """A long time in it is normal as long as something moves: weights, compile, capture."""


STAGES = (
    Stage("start", "has only just started", works=True),
    Stage("import", "imports its modules", works=True),
    Stage("config", "reads configuration and tokenizer", works=True),
    Stage("ray-connect", "connects to the Ray cluster"),
    Stage("ray-placement", "waits for a Ray placement group"),
    Stage("handshake", "shakes hands with the front end"),
    Stage("engine-init", "builds the engine"),
    Stage("wait-engine", "waits for the engine core"),
    Stage("spawn-workers", "starts its workers"),
    Stage("wait-workers", "waits for its workers"),
    Stage("ray-actor", "waits for its first call from Ray"),
    Stage("init-worker", "sets the worker up", works=True),
    Stage("init-device", "sets its device up"),
    Stage("rendezvous", "meets the other ranks at the store"),
    Stage("mesh", "connects the default group to its peers"),
    Stage("groups", "makes the parallel groups"),
    Stage("nccl-init", "makes an NCCL communicator"),
    Stage("communicators", "sets up custom collectives"),
    Stage("download", "downloads the model", works=True),
    Stage("load-weights", "loads the weights", works=True),
    Stage("message-queues", "connects the message queues"),
    Stage("profile", "measures memory in a trial run", works=True),
    Stage("compile", "compiles the model", works=True),
    Stage("kv-cache", "makes the KV cache", works=True),
    Stage("warm-up", "warms its kernels up", works=True),
    Stage("graph-capture", "captures CUDA graphs", works=True),
    Stage("program", "runs the program's own code"),
    Stage("collective", "is in a collective"),
    Stage("ready", "is ready and waits for work"),
    Stage("serving", "works on requests"),
    Stage("shutdown", "shuts down"),
    Stage("unknown", "is somewhere that ncdiag does not know"),
)

_BY_NAME = {stage.name: stage for stage in STAGES}
_ORDER = {stage.name: position for position, stage in enumerate(STAGES)}

LOOSE = ("program", "collective", "unknown")
"""Stages that say nothing about how far a rank is: a script may load data before or after it meets the others."""


def stage(name: str) -> Stage:
    """Raises KeyError for a name that is no stage."""
    return _BY_NAME[name]


def order(name: str) -> int:
    """The place of a stage, 0 first. Raises KeyError for a name that is no stage."""
    return _ORDER[name]


_MANY = {"is": "are", "has": "have"}


def describe(name: str, many: bool = False) -> str:
    """What a process in the stage does: "loads the weights"; of `many`: "load the weights"."""
    title = _BY_NAME[name].title
    verb, _, rest = title.partition(" ")
    return f"{_MANY.get(verb) or verb.removesuffix('s')} {rest}" if many else title


# What a process waits for. The first group waits for others and so is never the culprit by itself.
STORE, PEERS, QUEUE, WORKERS, ENGINE, ORDERS, GPU = "store", "peers", "queue", "workers", "engine", "orders", "gpu"
CLUSTER, HUB, DISK, LOCK, PIPE, TYPED, DNS, CHILD, SLEEP, SOCKET = (
    "cluster",
    "hub",
    "disk",
    "lock",
    "pipe",
    "typed",
    "dns",
    "child",
    "sleep",
    "socket",
)

ON_OTHERS = frozenset((STORE, PEERS, QUEUE, WORKERS, ENGINE, ORDERS, GPU))
"""Waits that some other rank or process has to end."""

WAITING = {
    STORE: "the store of the group",
    PEERS: "its peers",
    QUEUE: "the other side of a message queue",
    WORKERS: "its workers",
    ENGINE: "the engine core",
    ORDERS: "work",
    GPU: "the GPU",
    CLUSTER: "the Ray cluster",
    HUB: "a download",
    DISK: "a file",
    LOCK: "a lock",
    PIPE: "a pipe or local socket",
    TYPED: "somebody to type",
    DNS: "a name look-up",
    CHILD: "a child process",
    SLEEP: "a sleep to end",
    SOCKET: "a socket",
}
"""Kind of wait -> what is waited for, in words."""
