"""The model and /dev/shm."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..bench import Bench
from .base import fault


@fault("nodes", "model path missing on b", "model-path-missing", node="b", quick=True)
def model_missing(made: Bench) -> None:
    made.models["b"] = "/srv/models/not-there"


def _copy(made: Bench, name: str) -> Path:
    assert made.model is not None
    folder = made.hosts.folder / name
    shutil.copytree(made.model, folder)
    return folder


@fault("nodes", "weights missing on b", "model-path-missing", "weights-corrupt", node="b", rank=1)
def weights_missing(made: Bench) -> None:
    folder = _copy(made, "no-weights")
    for path in folder.glob("*.safetensors"):
        path.unlink()
    made.models["b"] = str(folder)


@fault("nodes", "corrupt shard on b", "weights-corrupt", node="b", rank=1, quick=True)
@fault("tp2", "corrupt shard", "weights-corrupt", quick=True)
def shard_corrupt(made: Bench) -> None:
    folder = _copy(made, "cut")
    for path in folder.glob("*.safetensors"):
        os.truncate(path, path.stat().st_size // 2)
    made.models["a" if made.shape == "tp2" else "b"] = str(folder)


@fault(
    "tp2",
    "damaged tokenizer",
    "engine-exception",
    "model-path-missing",
    "weights-corrupt",
    quick=True,
)
def tokenizer_damaged(made: Bench) -> None:
    folder = _copy(made, "tokenizer")
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": ')
    made.models["a"] = str(folder)


@fault("tp2", "/dev/shm of 64 KiB", "shm-too-small", node="a", quick=True)
def shm_small(made: Bench) -> None:
    made.before.append(lambda bench: bench.hosts["a"].mount("mount -t tmpfs -o size=64k,mode=1777 tmpfs /dev/shm"))
