"""The NCCL that the engine loads is known, and is one version on all nodes.

NCCL ranks of different versions refuse each other or hang, and the one that is loaded is not always the one that was
installed: VLLM_NCCL_SO_PATH, LD_PRELOAD and LD_LIBRARY_PATH go before the wheel that torch brings. The version is read from
the library file itself.

Source: the literal `NCCL version X.Y.Z+cudaA.B` in libnccl.so.2; vLLM's find_nccl_library; ld.so(8) for the search order.
"""

from __future__ import annotations

import functools
import mmap
import re
from typing import Dict, Iterator, List, Optional, Tuple, TypedDict

from ncdiag import engine
from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, skip, unknown, warn
from ncdiag.nodeset import fold
from ncdiag.parity import split

SYSTEM_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/cuda/lib64",
    "/usr/local/nccl/lib",
    "/opt/nccl/lib",
)
"""Where the dynamic loader and the usual installers put libraries."""

LITERAL = b"NCCL version "


class Library(TypedDict):
    """One libnccl that could be loaded."""

    path: str
    by: str
    """Why it comes into question: `loaded by 123`, `VLLM_NCCL_SO_PATH`, `LD_PRELOAD`, `LD_LIBRARY_PATH`, `torch's wheel`, `system`."""
    version: Optional[str]
    """`2.27.5+cuda12.9`; None where the file has no such literal."""


class Facts(TypedDict):
    """The candidates, the one that will be loaded first."""

    libraries: List[Library]
    torch: Optional[str]
    """Version of torch beside them; `+cpu` builds have no NCCL."""
    unreadable: Dict[str, str]


def collect(host: Host) -> Facts:
    found = engine.find(host)
    root = found.root if found else ""
    candidates = list(_candidates(host, found))
    facts: Facts = {"libraries": [], "torch": None, "unreadable": {}}
    seen = set()
    for path, by in candidates:
        try:
            real = host.real(root + path)
            if real in seen:
                continue
            seen.add(real)
            version = host.ask("nccl-version-in " + real, functools.partial(literal_version, real))
        except HostError as error:
            if by.startswith(("loaded", "VLLM", "LD_PRELOAD")):
                facts["unreadable"][path] = "%s (%s)" % (error.reason, by)
            continue
        facts["libraries"].append({"path": path, "by": by, "version": version})
    if found is not None:
        installed = engine.distributions(host, found, engine.site_packages(host, found))
        if "torch" in installed:
            facts["torch"] = engine.metadata(host, found, installed["torch"])["version"]
    return facts


def _candidates(host: Host, found: Optional[engine.Engine]) -> Iterator[Tuple[str, str]]:
    """`(path, why)` in the order in which the engine would take them."""
    if found is not None and found.pid is not None:
        try:
            maps = host.read("/proc/%d/maps" % found.pid, 16 << 20)
        except HostError:
            maps = ""
        for path in sorted(set(re.findall(r"(/\S*libnccl\.so[.\d]*)$", maps, re.M))):
            yield path, "loaded by %d" % found.pid
    try:
        environment = host.environ()
    except HostError:
        environment = {}
    if environment.get("VLLM_NCCL_SO_PATH"):
        yield environment["VLLM_NCCL_SO_PATH"], "VLLM_NCCL_SO_PATH"
    for path in re.split(r"[:\s]+", environment.get("LD_PRELOAD", "")):
        if "libnccl.so" in path:
            yield path, "LD_PRELOAD"
    for folder in environment.get("LD_LIBRARY_PATH", "").split(":"):
        if folder.startswith("/"):
            yield folder + "/libnccl.so.2", "LD_LIBRARY_PATH"
    if found is not None:
        for folder in engine.site_packages(host, found):
            yield folder + "/nvidia/nccl/lib/libnccl.so.2", "torch's wheel"
            yield folder + "/torch/lib/libnccl.so.2", "torch's own"
    for folder in SYSTEM_FOLDERS:
        yield folder + "/libnccl.so.2", "system"


def literal_version(path: str) -> Optional[str]:
    """The version that a libnccl carries as text, None where there is none. Raises OSError."""
    with open(path, "rb") as file:
        try:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            return None
        with content:
            at = content.find(LITERAL)
            while at >= 0:
                match = re.match(
                    rb"(\d+\.\d+\.\d+(?:\.\d+)?(?:\+cuda[\d.]+)?)", content[at + len(LITERAL) : at + len(LITERAL) + 40]
                )
                if match:
                    return match.group(1).decode()
                at = content.find(LITERAL, at + 1)
    return None


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    taken = {}
    for node, facts in snapshot.each(PROBE.id):
        for path, reason in facts["unreadable"].items():
            yield fail(
                "the library %s cannot be read: %s" % (path, reason),
                node,
                source=path,
                cause="nccl-version-mismatch",
                remedy="correct or unset the variable that names it",
            )
        libraries = facts["libraries"]
        if not libraries:
            if facts["torch"] and "+cpu" in facts["torch"]:
                yield skip("torch %s has no NCCL, and none is installed" % facts["torch"], node, source="files")
            else:
                yield unknown(
                    "no libnccl.so.2 was found beside the engine or in the system",
                    node,
                    source="files",
                    cause=None,
                    remedy="name the engine's interpreter with --python, or a running process of it with --pid",
                )
            continue
        first = libraries[0]
        taken[node] = first["version"]
        shown = "NCCL %s from %s (%s)" % (first["version"] or "of unknown version", first["path"], first["by"])
        others = {library["version"] for library in libraries[1:]} - {first["version"], None}
        if first["version"] is None:
            yield unknown(shown + ": the file holds no version", node, source=first["path"])
        elif others and first["by"] in ("VLLM_NCCL_SO_PATH", "LD_PRELOAD", "LD_LIBRARY_PATH"):
            yield warn(
                "%s goes before another one (%s)" % (shown, ", ".join(sorted(str(other) for other in others))),
                node,
                source=first["path"],
                observed=first["version"],
                cause="nccl-version-mismatch",
                remedy="unless that is meant, unset %s so that torch's own NCCL is loaded" % first["by"],
            )
        else:
            yield ok(shown, node, source=first["path"], observed=first["version"])
    difference = split(taken)
    if difference is not None:
        for value, nodes in difference.outliers.items():
            yield fail(
                "NCCL %s on %s; %s" % (value, fold(nodes), difference.others(value)),
                nodes[0] if len(nodes) == 1 else None,
                source="libnccl.so.2",
                observed=value,
                expected=difference.common,
                cause="nccl-version-mismatch",
                remedy="use one image on all nodes; NCCL of different versions cannot form a group",
            )


PROBE = Probe("nccl-library", "The NCCL that will be loaded is known and equal on all nodes", judge, collect)
