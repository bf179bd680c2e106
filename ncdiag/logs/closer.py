"""A closer look at signals with what stands beside them: a sentence that another line explains, an attempt that tells two reasons apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ncdiag.explain import Says, Signal
from ncdiag.logs.kinds import HOLDS, NO_GPU, NO_INODES, SHARED_GPU, TOLD_TWICE
from ncdiag.logs.model import STANDING
from ncdiag.logs.readers import Readers
from ncdiag.logs.unlike import sharing
from ncdiag.model import Evidence
from ncdiag.nccl.log_facts import NcclFacts

_GENERAL = ("remote process exited or there was a network error", "ncclRemoteError")
REACH = 6  # lines below the sentence that are of the same report


def look(signals: Sequence[Signal], readers: Readers, facts: NcclFacts, order: dict[str, float]) -> Iterator[Signal]:
    """Changes signals; those that it finds besides are returned. `order`: source -> position of its first line."""
    _fold_general(signals)
    _more_addresses_than_nodes(signals)
    _of_the_switch(signals)
    _recovery(signals)
    _forced(signals, facts)
    _inodes(signals)
    _holder(signals)
    _short(signals, readers)
    _beyond(signals, readers)
    _shared(signals)
    readers.elastic.place(signals)
    _named_twice(signals)
    _old_group(signals, readers)
    yield from readers.ports.half_open(signals)
    yield from sharing(facts, order)


def settled(signals: Sequence[Signal]) -> list[Signal]:
    """Without how far a start came, where what ended it is known, or that it still moves: that follows from nothing."""
    known = any(signal.says >= Says.STRONG and not signal.condition for signal in signals)
    moving = {
        (item.source, item.line) for signal in signals if signal.cause == "slow-not-hung" for item in signal.evidence
    }

    def over(signal: Signal) -> bool:
        return known or any((item.source, item.line) in moving for item in signal.evidence)

    return [
        signal for signal in signals if signal.says is not Says.SYMPTOM or signal.order < STANDING or not over(signal)
    ]


def _fold_general(signals: Sequence[Signal]) -> None:
    """torch's report of a failed call of NCCL begins with a sentence that fits every lost connection; NCCL's own last error below it says more."""
    specific = {
        (item.source, item.line)
        for signal in signals
        if signal.says >= Says.SYMPTOM
        for item in signal.evidence[:1]
        if not _general(item.text)
    }
    for signal in signals:
        item = signal.evidence[0] if signal.evidence else None
        if item is None or item.line is None or signal.says > Says.HINT or not _general(item.text):
            continue
        if any((item.source, item.line + step) in specific for step in range(1, REACH + 1)):
            signal.cause, signal.says = "", Says.CASCADE


def _general(text: str) -> bool:
    return any(words in text for words in _GENERAL)


_UNIQUE = re.compile(
    r"Got (?P<nodes>\d+) nodes .* and (?P<addresses>\d+) unique IP addresses (?P<list>[\[{(][\d., '\"a-f:]+[\]})])"
)


def _more_addresses_than_nodes(signals: Sequence[Signal]) -> None:
    """vLLM's one sentence for two mistakes: nodes with the same address, and a process whose address is no node's."""
    for signal in signals:
        found = _UNIQUE.search(signal.evidence[0].text) if signal.cause == "node-ip-wrong-interface" else None
        if found and int(found["addresses"]) > int(found["nodes"]):
            signal.summary = f"a process announces an address that Ray knows no node by: {found['nodes']} nodes, {found['addresses']} addresses {found['list']}"
            signal.remedy = "set VLLM_HOST_IP to the node's address in `ray list nodes`, for the engine's own process too (its shell, unit or container), before `ray start` and `vllm serve`"


def _of_the_switch(signals: Sequence[Signal]) -> None:
    """A switch that reports a fatal error takes its NVLinks with it: the GPUs' Xid 74 is what they see of that."""
    fatal = any(signal.cause == "nvswitch-error" and signal.says is Says.NAMED for signal in signals)
    for signal in signals:
        if fatal and signal.cause == "gpu-hardware-fault" and ": 74," in signal.evidence[0].text:
            signal.cause, signal.says = "", Says.CASCADE


_ACTION = re.compile(r"\): 154,.* to 0x[0-9a-f]+ \((?P<action>[^)]+)\)")
_RECOVER = {
    "GPU Reset Required": "the driver asks for a reset of this GPU: drain the node, `nvidia-smi --gpu-reset -i GPU` (reboot where that is refused); exchange the GPU when it comes again",
    "Node Reboot Required": "the driver asks for a reboot: drain the node and reboot it; exchange the GPU when it comes again",
    "Drain P2P": "the driver asks to end what uses this GPU over NVLink: drain the node, then reset the GPU",
    "Drain and Reset": "the driver asks to drain this GPU and reset it: `nvidia-smi --gpu-reset -i GPU` once nothing runs on it",
}
"""Xid 154's words -> what to do. Source: NVIDIA's Xid catalogue, GPU recovery actions."""


def _recovery(signals: Sequence[Signal]) -> None:
    """The driver itself says how a GPU is to be recovered."""
    for signal in signals:
        found = _ACTION.search(signal.evidence[0].text) if signal.evidence else None
        action = _RECOVER.get(found["action"]) if found else None
        for fault in signals if action else ():
            if fault.cause == "gpu-hardware-fault" and fault.where.get("device") == signal.where.get("device"):
                fault.remedy = action or fault.remedy


def _forced(signals: Sequence[Signal], facts: NcclFacts) -> None:
    """No network starts, and the process says which one it was told to use."""
    for signal in signals:
        if (
            signal.cause != "net-plugin-forced-unavailable"
            or "Failed to initialize any NET" not in signal.evidence[0].text
        ):
            continue
        for process in facts.processes:
            name = process.settings.get("NCCL_NET", "").strip(" .")
            at = process.evidence.get("NCCL_NET")
            if not name or at is None or process.host != signal.where.get("node", process.host):
                continue
            signal.summary = f"NCCL_NET={name} is set, and no network of that name starts here"
            signal.candidates = ("net-plugin-incompatible",)
            signal.evidence.append(Evidence(at.source, at.text.strip(), at.line))
            provides = (
                "give the process its RDMA devices (ibv_devinfo in its container)"
                if name == "IB"
                else f"install what provides {name}"
            )
            signal.remedy = (
                f"unset NCCL_NET and NCCL_NET_PLUGIN (environment, /etc/nccl.conf, ~/.nccl.conf), or {provides}"
            )
            break


def _inodes(signals: Sequence[Signal]) -> None:
    """A write fails for want of space on a file system that has space and no inodes."""
    failed = [signal for signal in signals if signal.cause == "disk-full" and not signal.condition]
    paths = [str(signal.where["path"]) for signal in failed if "path" in signal.where]
    for used_up in [signal for signal in signals if signal.kind == NO_INODES]:
        mount = str(used_up.where.get("path", "")).rstrip("/") + "/"
        if not paths or any(path.startswith(mount) for path in paths):
            for signal in failed:
                signal.summary, signal.remedy = used_up.summary, used_up.remedy


def _holder(signals: Sequence[Signal]) -> None:
    """A GPU is not free at start, and a list of processes says who holds it."""
    held = [signal for signal in signals if signal.kind == HOLDS]
    for signal in signals:
        starved = signal.cause == "gpu-memory-occupied" and not signal.condition
        if starved and len(held) == 1 and held[0].where.get("pid") != signal.where.get("pid"):
            signal.summary += "; " + held[0].summary


def _short(signals: Sequence[Signal], readers: Readers) -> None:
    """Ray cannot place a demand, and its own table shows of which resource there is too little, used or not."""
    short = readers.ray_status.short()
    if short is None:
        return
    name, sentence, lines = short
    for signal in signals:
        if signal.cause == "ray-resources-infeasible" and not signal.condition and signal.says is Says.STRONG:
            signal.summary = sentence
            signal.evidence = [*lines, *[item for item in signal.evidence if item not in lines]]
            signal.remedy = (
                "let the nodes offer more (`ray start` without a small --num-cpus; requests of the pods), or ask for fewer CPUs a bundle"
                if name == "CPU"
                else "`ray status` and `ray list nodes`: which node has not joined or offers fewer GPUs; else a smaller world"
            )


def _beyond(signals: Sequence[Signal], readers: Readers) -> None:
    """A process sees no GPU, and its variable names only numbers that its container does not have."""
    beyond = readers.visible.beyond()
    if beyond is None:
        return
    setting, count, lines = beyond
    for signal in signals:
        if signal.cause == "visible-devices-conflict" and signal.kind == NO_GPU:
            signal.summary = f"{setting} names GPUs that are not here: nvidia-smi counts {count}, numbered from 0"
            signal.evidence = [*lines, *signal.evidence]
            signal.candidates = ()
            signal.remedy = "drop the variable, or number the GPUs as this container sees them (from 0): those of the host are chosen by --gpus or NVIDIA_VISIBLE_DEVICES already"


def _shared(signals: Sequence[Signal]) -> None:
    """Two ranks on one GPU, on a node whose device plug-in counts one GPU several times."""
    shares = next((signal for signal in signals if signal.kind == SHARED_GPU), None)
    for signal in signals:
        if shares is not None and signal.cause == "duplicate-gpu" and not signal.condition:
            signal.summary, signal.remedy = f"{signal.summary}: {shares.summary}", shares.remedy


def _named_twice(signals: Sequence[Signal]) -> None:
    """The root saw a rank twice, and printed environments say which two processes those are."""
    told = next((signal for signal in signals if signal.kind == TOLD_TWICE), None)
    if told is None:
        return
    for signal in signals:
        same = signal.cause == told.cause and signal.where.get("rank") == told.where.get("rank")
        if same and signal.says is Says.NAMED:
            signal.summary, signal.remedy = told.summary, told.remedy


def _old_group(signals: Sequence[Signal], readers: Readers) -> None:
    """Placement groups hold everything, and a list of them says which one was made."""
    created = readers.ray_status.created
    for signal in signals:
        if signal.cause == "ray-placement-group-leaked" and signal.says >= Says.STRONG and 0 < len(created) <= 4:
            signal.evidence.extend(line.evidence() for _, line in created)
            signal.summary += "; it lists as created: " + ", ".join(name for name, _ in created)
            break
