"""Whose the GPUs are, and how many ranks a node holds: a bandwidth run does not start on GPUs that someone else uses, nor beyond a node's means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ncdiag.nodeset import counted

UNSEEN_MIB = 1024
"""More than the driver keeps for itself on an idle GPU."""
RANKS_PER_CPU = 4
RANK_BYTES = 300_000_000
"""What one rank takes on a CPU: torch itself and its buffers."""


def too_many(node: str, facts: dict[str, Any], per_node: int) -> str:
    """Why so many ranks cannot run on a node, one sentence; empty: they can."""
    gpus = len(facts.get("cuda") or ())
    if gpus:
        return f"{node} has {counted(gpus, 'GPU')} and takes one rank each" if per_node > gpus else ""
    cpus, memory = facts.get("cpus"), facts.get("memory_free")
    if cpus and per_node > max(RANKS_PER_CPU * cpus, 2):
        return f"{node} has {counted(cpus, 'CPU')} and takes {max(RANKS_PER_CPU * cpus, 2)} ranks at most, {RANKS_PER_CPU} a CPU"
    if memory is not None and per_node > max(memory // RANK_BYTES, 1):
        return f"{node} has {memory / 1e9:.1f} GB of memory free and a rank takes about {RANK_BYTES / 1e9:.1f} GB: {counted(max(memory // RANK_BYTES, 1), 'rank')} at most"
    return ""


def taken(node: str, facts: dict[str, Any]) -> list[str]:
    """One sentence for each use of the GPUs that the run would take; also for what could not be asked. Empty: they are free."""
    own = [str(device["uuid"]).removeprefix("GPU-") for device in facts.get("cuda") or ()]
    if not own:
        return []
    gpus = facts.get("gpus") or {}
    if gpus.get("error"):
        return [f"{node}: nvidia-smi could not say who uses the GPUs ({gpus['error']})"]
    sentences = []
    explained = set()
    for user in gpus.get("users", ()):
        uuid = str(user["uuid"]).removeprefix("GPU-")
        index = _index(own, uuid)
        if index is None:
            continue
        explained.add(uuid)
        who = f" of {user['user']}" if user.get("user") else ""
        sentences.append(
            f"{node}: GPU {index} is used by pid {user['pid']}{who}, {user['mib']:.0f} MiB: {user['command'][:120]}"
        )
    for name, mib in gpus.get("used_mib", {}).items():
        uuid = name.removeprefix("GPU-")
        index = _index(own, uuid)
        if index is not None and uuid not in explained and mib > UNSEEN_MIB:
            sentences.append(
                f"{node}: {mib:.0f} MiB of GPU {index} are in use by a process that cannot be seen from there (another container?)"
            )
    return sentences


def _index(own: list[str], uuid: str) -> int | None:
    """CUDA's number of a GPU; all GPUs count where torch does not tell their identities."""
    if not any(own):
        return 0
    return own.index(uuid) if uuid in own else None


def all_taken(agents: Iterable[Any]) -> list[str]:
    """The same for agents (`node`, `facts`); each sentence once."""
    return list(
        dict.fromkeys(sentence for agent in agents if agent.facts for sentence in taken(agent.node, agent.facts))
    )
