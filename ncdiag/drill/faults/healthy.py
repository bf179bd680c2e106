"""Nothing is broken."""

from __future__ import annotations

from ..bench import Bench
from .base import HEALTHY, fault


@fault("gloo", "nothing", HEALTHY, quick=True)
@fault("tp2", "nothing", HEALTHY, quick=True)
@fault("nodes", "nothing", HEALTHY, quick=True)
@fault("ray", "nothing", HEALTHY, quick=True)
def healthy(made: Bench) -> None:
    """As it should be."""
    made.stall_after_s = 15.0


@fault("nodes", "nothing; PP=2 (start only)", HEALTHY, quick=True)
@fault("ray", "nothing; PP=2 (start only)", HEALTHY, quick=True)
def healthy_pp(made: Bench) -> None:
    """Pipeline parallelism on CPUs starts; its first request fails by a fault of vLLM's, so the request is not judged."""
    made.stall_after_s = 15.0
    made.options = ["--ready-when", "health"]
    made.parallel = {"a": "pipeline-parallel-size", "b": "pipeline-parallel-size"}
