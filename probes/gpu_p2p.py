"""The GPUs of a node can copy to each other directly, and all pairs alike.

NCCL asks the driver which pairs can. Pairs that cannot go through host memory, which is slow; a pair that is joined by NVLink and still
cannot is an error for NCCL (`P2P is disabled between NVLINK connected GPUs`). Boards without the feature at all are simply like that.

Source: nvidia-smi topo -p2p r and w (NVML P2P status), NCCL src/graph/paths.cc (ncclTopoCheckP2p).
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, Optional, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, skip, unknown, warn

WORDS = {
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "NS": "not supported",
    "DR": "disabled by a registry key",
    "U": "unknown",
}

Pairs = Dict[str, str]
"""`0-1` -> OK, CNS, NS …"""


class Facts(TypedDict):
    read: Pairs
    write: Pairs
    why: Optional[str]  # why the driver did not tell


def collect(host: Host) -> Facts:
    facts: Facts = {"read": {}, "write": {}, "why": None}
    try:
        facts["read"] = parse(host.run(["nvidia-smi", "topo", "-p2p", "r"], 15.0).out)
        facts["write"] = parse(host.run(["nvidia-smi", "topo", "-p2p", "w"], 15.0).out)
    except HostError as error:
        facts["why"] = str(error)
    return facts


def parse(text: str) -> Pairs:
    """The matrix; its own diagonal is X."""
    pairs: Pairs = {}
    columns: List[str] = []
    for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
        fields = line.split()
        if not fields or not re.match(r"GPU\d+$", fields[0]):
            continue
        if len(fields) > 1 and fields[1].startswith("GPU"):
            columns = fields
            continue
        for column, word in zip(columns or [f"GPU{n}" for n in range(len(fields) - 1)], fields[1:]):
            if word != "X":
                pairs[f"{fields[0][3:]}-{column[3:]}"] = word
    return pairs


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        gpus = (snapshot.facts(node, "gpus") or {"gpus": []})["gpus"]
        pairs = {f"{kind} {pair}": word for kind in ("read", "write") for pair, word in facts[kind].items()}
        if len(gpus) < 2:
            yield skip("fewer than two GPUs that could be asked", node, source="nvidia-smi topo -p2p")
        elif not pairs:
            why = facts["why"] or "the answer holds no matrix"
            yield unknown(f"which GPUs can copy to each other is not told: {why}", node, source="nvidia-smi topo -p2p")
        else:
            yield _judged(node, pairs, any(link["active"] for gpu in gpus for link in gpu["nvlinks"] or []))


def _judged(node: str, pairs: Pairs, nvlink: bool) -> Finding:
    bad = {pair: word for pair, word in pairs.items() if word != "OK"}
    source = "nvidia-smi topo -p2p r, w"
    if not bad:
        return ok(f"direct copies work between all GPUs ({len(pairs)} directions)", node, source=source)
    first, word = next(iter(bad.items()))
    text = f"{len(bad)} of {len(pairs)} directions between GPUs cannot copy directly ({first}: {word}, {WORDS.get(word, word)})"
    if nvlink:
        return fail(f"{text} although NVLink is there; NCCL ends with an error on such pairs", node, source=source, observed=bad,
                    expected="OK", cause="p2p-broken", remedy=_REMEDY)  # fmt: skip
    if len(bad) == len(pairs) and word != "DR":
        return skip(f"{text}: this board has no direct copies, NCCL goes through host memory", node, source=source)
    return warn(text, node, source=source, observed=bad, expected="OK", cause="p2p-broken", remedy=_REMEDY)


_REMEDY = "check ACS and the IOMMU, then the driver; NCCL_P2P_DISABLE=1 works around it at the cost of speed"

PROBE = Probe("gpu-p2p", "All GPUs of a node can copy to each other", judge, collect, needs=("gpus",), timeout_s=40.0)
