"""A closer look at signals with what stands beside them: a sentence that another line explains, an attempt that tells two reasons apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ncdiag.explain import Says, Signal
from ncdiag.logs.readers import Readers

_GENERAL = ("remote process exited or there was a network error", "ncclRemoteError")
REACH = 6  # lines below the sentence that are of the same report


def look(signals: Sequence[Signal], readers: Readers) -> Iterator[Signal]:
    """Changes signals; those that it finds besides are returned."""
    _fold_general(signals)
    _more_addresses_than_nodes(signals)
    _of_the_switch(signals)
    _recovery(signals)
    yield from readers.ports.half_open(signals)


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
