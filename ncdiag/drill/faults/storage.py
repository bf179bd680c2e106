"""The model on a file system of its own that is slow, or never answers; a full temporary folder."""

from __future__ import annotations

import tempfile
from pathlib import Path

from .. import engines
from ..bench import Bench
from ..engines import make_model
from ..hosts import wait_for
from .base import SLOW, fault

LARGE = ("8", "1024")
"""Layers and hidden size of a model of some 100 MB: its load can be watched."""
SERVER = Path(__file__).parent.parent / "slowfs.py"
RATE = 2.5e6
"""Bytes a second: 40 s and more for one rank's reads, several times as long as nothing may move."""


def _behind(made: Bench, *how: str) -> None:
    """Host b reads the model through a file system of its own."""
    if missing := engines.lacks("mfusepy"):
        raise RuntimeError(missing)
    model = make_model(Path(tempfile.gettempdir()) / "ncdiag-lab-large", *LARGE)
    mounted = made.hosts.folder / "slow"
    mounted.mkdir()
    host, log = made.hosts["b"], made.hosts.folder / "slowfs.out"
    host.start(engines.python(), str(SERVER), str(model), str(mounted), *how, log=log)
    if not wait_for(lambda: host.run("test", "-e", str(mounted / "config.json")).returncode == 0):
        raise RuntimeError(f"the slow file system did not come up: {log.read_text()[-500:]}")
    made.models |= {"a": str(model), "b": str(mounted)}


@fault(
    "nodes",
    "the disk of b never answers a read of the weights (FUSE)",
    "rank-stuck-outside-collective",
    "storage-slow",
    node="b",
    rank=1,
    stages=("load-weights",),
    name="read-stalls",
)
def read_stalls(made: Bench) -> None:
    made.before.append(lambda bench: _behind(bench, "--stall"))


@fault("nodes", "the disk of b is slow, but the load goes on (FUSE)", SLOW, name="slow-load")
def slow_load(made: Bench) -> None:
    made.before.append(lambda bench: _behind(bench, "--rate", str(RATE)))


@fault("ray", "Ray's folder on b is full: every worker there dies", "disk-full", node="b", name="disk-full", quick=True)
def disk_full(made: Bench) -> None:
    made.before.append(_fill)


@fault(
    "ray",
    "Ray's folder on b is full (found before the start)",
    "disk-full",
    node="b",
    name="disk-full-found",
    probe="temp-space",
)
def disk_full_found(made: Bench) -> None:
    """With SSH beside Ray the node can be looked at."""
    made.preflight = True
    made.ssh.serve(made.hosts["b"])
    made.options = ["--nodes", "ssh:b", "--ssh-config", str(made.ssh.config)]
    made.before.append(_fill)


def _fill(made: Bench) -> None:
    """A file system of 64 MiB, filled to the last byte."""
    made.hosts["b"].mount("mount -o remount,size=64m /tmp/ray; cat /dev/zero > /tmp/ray/filler 2> /dev/null || true")
