"""The model is on every node, whole and the same.

Each rank reads config, tokenizer and its shards from its own node's file system. A path that is missing on one node ends that
node and leaves the others waiting 30 minutes in the rendezvous; a truncated shard ends the load; another config comes up and
answers wrongly.

Source: safetensors format (8-byte header length, then JSON with data_offsets), model.safetensors.index.json, /proc/self/mounts, statvfs.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from typing import Any, Dict, Iterator, List, Optional, TypedDict

from ncdiag.host import Absent, Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, skip, warn
from ncdiag.nodeset import counted, fold
from ncdiag.parity import split

WEIGHTS = re.compile(r"\.(safetensors|bin|pt|pth|gguf)$")

NETWORK_SYSTEMS = (
    "nfs",
    "nfs4",
    "lustre",
    "ceph",
    "fuse",
    "fuse.gcsfuse",
    "fuse.s3fs",
    "fuse.mount-s3",
    "fuse.juicefs",
    "9p",
    "virtiofs",
    "beegfs",
    "gpfs",
    "wekafs",
    "cifs",
    "smb3",
)
"""File systems whose speed another machine decides."""

HEADER_LIMIT = 64 << 20
"""Bytes of a safetensors header; the largest public ones have a few MB."""


class Shard(TypedDict):
    """One file of weights."""

    name: str
    size: int
    """Bytes, links followed."""
    expected: Optional[int]
    """Size by the file's own header (safetensors only)."""
    error: Optional[str]


class Facts(TypedDict):
    path: Optional[str]
    """None: no model was named."""
    exists: bool
    config: Optional[str]
    """First 16 digits of the SHA-256 of config.json."""
    index: Optional[str]
    """The same of model.safetensors.index.json."""
    shards: List[Shard]
    missing: List[str]
    """Shards that the index names and that are not there."""
    filesystem: Optional[str]
    tokenizer: bool


def collect(host: Host) -> Facts:
    facts: Facts = {
        "path": host.model,
        "exists": False,
        "config": None,
        "index": None,
        "shards": [],
        "missing": [],
        "filesystem": None,
        "tokenizer": False,
    }
    if host.model is None or not host.model.startswith("/"):
        return facts
    try:
        names = host.list(host.model)
    except Absent:
        return facts
    facts["exists"] = True
    facts["filesystem"] = _filesystem(host, host.model)
    facts["config"] = _digest(host, host.model + "/config.json")
    facts["index"] = _digest(host, host.model + "/model.safetensors.index.json")
    facts["tokenizer"] = any(name.startswith("tokenizer") or name in ("vocab.json", "tekken.json") for name in names)
    facts["shards"] = [
        _shard(host, host.model, name)
        for name in names
        if WEIGHTS.search(name) and name not in ("training_args.bin", "optimizer.pt", "scheduler.pt")
    ]
    if facts["index"]:
        try:
            wanted = set(
                json.loads(host.read(host.model + "/model.safetensors.index.json", HEADER_LIMIT))["weight_map"].values()
            )
            facts["missing"] = sorted(str(name) for name in wanted if name not in names)
        except (ValueError, KeyError, AttributeError, TypeError):
            facts["missing"] = ["(model.safetensors.index.json is damaged)"]
    return facts


def _digest(host: Host, path: str) -> Optional[str]:
    try:
        return hashlib.sha256(host.read_bytes(path, HEADER_LIMIT)).hexdigest()[:16]
    except Absent:
        return None


def _shard(host: Host, folder: str, name: str) -> Shard:
    shard: Shard = {"name": name, "size": 0, "expected": None, "error": None}
    try:
        path = host.real(folder + "/" + name)
        shard["size"] = host.stat(path).size
        if name.endswith(".safetensors"):
            shard["expected"] = _expected(host, path)
    except HostError as error:
        shard["error"] = error.reason
    except (ValueError, KeyError, TypeError) as error:
        shard["error"] = "its header is damaged (%s)" % type(error).__name__
    return shard


def _expected(host: Host, path: str) -> int:
    """Size of the whole file by its header. Raises ValueError for a damaged one."""
    head = host.head(path, 8)
    if len(head) < 8:
        raise ValueError("no header")
    (length,) = struct.unpack("<Q", head)
    if length > HEADER_LIMIT:
        raise ValueError("a header of %d bytes" % length)
    raw = host.head(path, 8 + length)[8:]
    if len(raw) < length:
        raise ValueError("cut in its header")
    header: Dict[str, Any] = json.loads(raw.decode("utf-8"))
    ends = [int(tensor["data_offsets"][1]) for name, tensor in header.items() if name != "__metadata__"]
    return 8 + length + max(ends, default=0)


def _filesystem(host: Host, path: str) -> Optional[str]:
    best = ("", "")
    try:
        mounts = host.read("/proc/self/mounts")
    except HostError:
        return None
    for line in mounts.splitlines():
        parts = line.split()
        if len(parts) >= 3 and (path + "/").startswith(parts[1].rstrip("/") + "/") and len(parts[1]) >= len(best[0]):
            best = (parts[1], parts[2])
    return best[1] or None


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    nodes = dict(snapshot.each(PROBE.id))
    for node, facts in nodes.items():
        yield from _one(node, facts)
    for name, what in (("config", "config.json"), ("index", "model.safetensors.index.json")):
        difference = split({node: facts[name] for node, facts in nodes.items() if facts["exists"]})
        for value, outliers in difference.outliers.items() if difference else ():
            yield fail(
                "%s differs on %s" % (what, fold(outliers)),
                outliers[0] if len(outliers) == 1 else None,
                source=what,
                observed=value,
                expected=difference.common if difference else None,
                cause="model-path-missing",
                device=what,
                remedy="copy one and the same model folder to all nodes (rsync -a --checksum), or use one shared mount",
            )
    sizes = {
        node: {shard["name"]: shard["size"] for shard in facts["shards"]}
        for node, facts in nodes.items()
        if facts["exists"]
    }
    difference = split(sizes)
    for _, outliers in difference.outliers.items() if difference else ():
        yield fail(
            "the weights on %s differ in names or sizes from those of other nodes" % fold(outliers),
            outliers[0] if len(outliers) == 1 else None,
            source="file sizes",
            cause="model-path-missing",
            remedy="copy one and the same model folder to all nodes (rsync -a --checksum)",
        )


def _one(node: str, facts: Facts) -> Iterator[Finding]:
    path = facts["path"]
    if path is None:
        yield skip("no model was named; --model PATH checks it on every node", node)
        return
    if not path.startswith("/"):
        yield skip("%s is no absolute path: it may come from a hub's cache, which is not looked into" % path, node)
        return
    if not facts["exists"]:
        yield fail(
            "the model %s does not exist" % path,
            node,
            source=path,
            observed="absent",
            expected="a folder",
            cause="model-path-missing",
            remedy="mount or copy it to the same path on this node, or correct the path",
        )
        return
    bad = False
    for shard in facts["shards"]:
        if shard["error"] or (shard["expected"] is not None and shard["size"] < shard["expected"]):
            bad = True
            reason = shard["error"] or "%d bytes of %d" % (shard["size"], shard["expected"] or 0)
            yield fail(
                "%s is not whole: %s" % (shard["name"], reason),
                node,
                source=path + "/" + shard["name"],
                observed=shard["size"],
                unit="bytes",
                expected=shard["expected"],
                cause="weights-corrupt",
                remedy="fetch this file again and compare its checksum",
                device=shard["name"],
            )
    if facts["missing"]:
        bad = True
        yield fail(
            "of the shards that the index names %s %s missing: %s"
            % (len(facts["missing"]), "is" if len(facts["missing"]) == 1 else "are", ", ".join(facts["missing"][:3])),
            node,
            source=path + "/model.safetensors.index.json",
            observed=facts["missing"][:20],
            cause="model-path-missing",
            remedy="finish the download on this node",
        )
    if facts["config"] is None or not facts["shards"]:
        bad = True
        lacking = " and ".join(
            name for name, there in (("config.json", facts["config"]), ("weights", facts["shards"])) if not there
        )
        yield fail(
            "%s holds no %s" % (path, lacking),
            node,
            source=path,
            cause="model-path-missing",
            remedy="finish the download on this node, or correct the path",
        )
    if not facts["tokenizer"] and facts["config"]:
        yield warn(
            "%s holds no tokenizer" % path,
            node,
            source=path,
            cause="model-path-missing",
            remedy="copy the tokenizer's files, or give --tokenizer",
        )
    if not bad:
        total = sum(shard["size"] for shard in facts["shards"])
        remote = (
            " (a network file system: its speed decides the load time)"
            if facts["filesystem"] in NETWORK_SYSTEMS
            else ""
        )
        yield ok(
            "%s of weights, %.1f GiB, on %s%s"
            % (
                counted(len(facts["shards"]), "file"),
                total / 2**30,
                facts["filesystem"] or "an unknown file system",
                remote,
            ),
            node,
            source=path,
            observed={"bytes": total, "filesystem": facts["filesystem"]},
        )


PROBE = Probe("model-path", "The model is on every node, whole and the same", judge, collect, timeout_s=20)
