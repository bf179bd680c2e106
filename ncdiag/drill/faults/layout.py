"""Ranks and nodes that disagree, or are missing."""

from __future__ import annotations

from ..bench import Bench
from .base import RENDEZVOUS, fault


@fault("gloo", "second node never started", "rank-missing", node="b", rank=1, stages=RENDEZVOUS, quick=True)
@fault("nodes", "second node never started", "rank-missing", node="b", rank=1, stages=RENDEZVOUS, quick=True)
def node_missing(made: Bench) -> None:
    made.skip.add("b")


@fault("gloo", "ranks disagree on the world size", "rank-layout-wrong", quick=True)
def world_size(made: Bench) -> None:
    made.env["b"]["WORLD_SIZE"] = "3"


@fault("gloo", "both nodes are rank 0", "rank-layout-wrong", node="b", quick=True)
@fault("nodes", "both nodes have --node-rank 0", "rank-layout-wrong", node="b")
def same_rank(made: Bench) -> None:
    made.node_rank["b"] = 0


@fault("nodes", "TP=2 on a, PP=2 on b", "rank-layout-wrong", "parallel-size-mismatch")
def parallel_differs(made: Bench) -> None:
    made.parallel["b"] = "pipeline-parallel-size"


@fault(
    "nodes",
    "--max-model-len and --block-size differ on b",
    "version-mismatch",
    "parallel-size-mismatch",
    "rank-layout-wrong",
    "engine-exception",
    "model-path-missing",
    quick=True,
)
def config_differs(made: Bench) -> None:
    made.args["b"] = ["--max-model-len", "256", "--block-size", "64"]
