"""The variables of vLLM, Ray, torch and gloo that matter at start-up are right, and alike on all nodes.

A VLLM_PORT that Kubernetes made, a CUDA_VISIBLE_DEVICES with a blank in it or a GLOO_SOCKET_IFNAME in NCCL's notation ends the
start with an error that names something else; a variable set on one node only makes the ranks take different ways.

Source: vllm/envs.py, torch/csrc/distributed/c10d, ray/_private/ray_constants.py; /proc/<pid>/environ or the environment of ncdiag.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Optional, TypedDict

from ncdiag import engine, parity
from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, unknown, warn
from ncdiag.nccl import frameworks
from ncdiag.nccl.node import addresses, several
from ncdiag.nodeset import counted, fold

WANTED = re.compile(
    r"(?:VLLM|RAY|GLOO|TP|TORCH|PYTORCH|HIP|ROCR|UCX|OFI_NCCL)_|CUDA_(?:VISIBLE_DEVICES|LAUNCH_BLOCKING|DEVICE_ORDER|DEVICE_MAX_CONNECTIONS"
    r"|MODULE_LOADING)$|NVIDIA_VISIBLE_DEVICES$|HF_(?:HUB_OFFLINE|HOME|HUB_CACHE|ENDPOINT)$|TRANSFORMERS_(?:OFFLINE|CACHE)$|MASTER_(?:ADDR|PORT)$"
    r"|(?:LOCAL_)?RANK$|(?:LOCAL_)?WORLD_SIZE$|GROUP_RANK$|NODE_RANK$|HOST_IP$|LD_PRELOAD$|LD_LIBRARY_PATH$|USE_LIBUV$|OMP_NUM_THREADS$",
    re.I,
)
"""Variables that are kept; the rest of the environment is nobody's business."""

PER_NODE = re.compile(
    r"VLLM_(?:HOST_IP|DP_RANK\w*|PORT|CACHE_ROOT|CONFIG_ROOT|LOGGING_\w+|LOOPBACK_IP|API_KEY|NO_USAGE_STATS|DO_NOT_TRACK|USAGE_SOURCE)$"
)
"""vLLM's variables that may or must differ from node to node."""


class Facts(TypedDict):
    environ: Optional[Dict[str, str]]
    """The variables of WANTED; None when the environment could not be read, for `reason`."""
    reason: Optional[str]
    absent: List[str]
    """Libraries of LD_PRELOAD that are not there."""


def collect(host: Host) -> Facts:
    try:
        told = host.environ()
    except HostError as error:
        return {"environ": None, "reason": str(error), "absent": []}
    environ = {name: value for name, value in told.items() if WANTED.match(name)}
    preloaded = [path for path in re.split(r"[:\s]+", environ.get("LD_PRELOAD", "")) if path.startswith("/")]
    return {"environ": environ, "reason": None, "absent": [path for path in preloaded if engine.absent(host, path)]}


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    told: Dict[str, Dict[str, str]] = {}
    alone = snapshot.plan.ranks if len(snapshot.nodes) == 1 and not several(snapshot) else None
    plan = frameworks.Plan(snapshot.plan.gpus_per_node or alone, snapshot.plan.model, several(snapshot))
    for node, facts in snapshot.each(PROBE.id):
        environ = facts["environ"]
        if environ is None:
            yield unknown(
                "the engine's environment could not be read: %s" % facts["reason"],
                node,
                source="environment",
                remedy="name a process of the engine with --pid, or the variables it will get with --env-file",
            )
            continue
        told[node] = environ
        held = addresses(snapshot, node)
        here = plan._replace(
            interfaces=list(dict.fromkeys(one.name.partition(":")[0] for one in held)),
            addresses=[one.address for one in held],
        )
        found = frameworks.find(environ, here, facts["absent"])
        for trouble in found:
            yield (fail if trouble.fatal else warn)(
                trouble.summary,
                node,
                source="environment",
                observed="%s=%s" % (trouble.name, environ.get(trouble.name, "")),
                expected=trouble.expected,
                cause=trouble.cause,
                remedy=trouble.remedy,
                setting=trouble.name,
            )
        if not found:
            yield ok(
                "%s of vLLM, Ray, torch and gloo set, none amiss" % counted(len(environ), "variable")
                if environ
                else "no variable of vLLM, Ray, torch or gloo is set",
                node,
                source="environment",
                observed=environ,
            )
    yield from _between_nodes(told)


def _between_nodes(told: Dict[str, Dict[str, str]]) -> Iterator[Finding]:
    """vLLM's settings that one node has and another has not, and ranks that are given twice."""
    names = sorted(
        {
            name
            for environ in told.values()
            for name in environ
            if name.startswith("VLLM_") and not PER_NODE.match(name) and not frameworks.SERVICE.match(name)
        }
        | {
            name
            for environ in told.values()
            for name in environ
            if name in ("WORLD_SIZE", "HF_HUB_OFFLINE", "RAY_ADDRESS")
        }
    )
    for name in names:
        values: Dict[Optional[str], List[str]] = {}
        for node, environ in told.items():
            values.setdefault(environ.get(name), []).append(node)
        if len(values) > 1:
            observed: Dict[str, Any] = {"not set" if value is None else value: nodes for value, nodes in values.items()}
            yield warn(
                "%s differs between nodes: %s" % (name, parity.shared(values)),
                min(values.values(), key=len)[0],
                source="environment of each node",
                observed=observed,
                expected="one value on all nodes",
                cause="env-unknown-or-invalid",
                remedy="set %s alike on every node, or unset it on all" % name,
                setting=name,
            )
    ranks: Dict[str, List[str]] = {}
    for node, environ in told.items():
        if environ.get("WORLD_SIZE", "1") != "1" and "RANK" in environ:
            ranks.setdefault(environ["RANK"], []).append(node)
    for rank, nodes in ranks.items():
        if len(nodes) > 1:
            yield warn(
                "RANK is %s on %s" % (rank, fold(nodes)),
                nodes[0],
                source="environment of each node",
                observed={rank: nodes},
                expected="a rank of its own for each process",
                cause="rank-layout-wrong",
                remedy="unset RANK and WORLD_SIZE in the shells (the launcher sets them)",
                setting="RANK",
            )


PROBE = Probe(
    "framework-environment",
    "vLLM's, Ray's, torch's and gloo's variables are right, and alike on all nodes",
    judge,
    collect,
    needs=("interfaces",),
)
