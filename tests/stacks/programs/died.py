"""Rank 1 ends before it comes to the store; the others wait there for it."""

# mypy: ignore-errors
import sys

import group
import torch.distributed  # noqa: F401  its import takes seconds and is no fault

group.here()
if group.RANK == 1:
    sys.exit(3)
group.join()
