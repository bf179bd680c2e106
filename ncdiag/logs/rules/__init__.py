"""The rules by family. A rule keys on a software's own wording; adding one costs a line in its family and a fixture in tests/diagnose/cases."""

from __future__ import annotations

from ncdiag.logs.model import Rule
from ncdiag.logs.rules import memory, network, node, processes, ray, rdma, versions

RULES: tuple[Rule, ...] = (*network.RULES, *rdma.RULES, *node.RULES, *versions.RULES, *ray.RULES, *memory.RULES, *processes.RULES)
