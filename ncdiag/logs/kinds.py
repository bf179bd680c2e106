"""Kinds of signal that other signals ask for: what was seen, whatever the sentence about it says."""

from __future__ import annotations

NO_GPU = "no-gpu"
"""A process sees no GPU."""
IDLE = "idle-nodes-removed"
"""The autoscaler took idle nodes away."""
SHARED_GPU = "shared-gpu"
"""A node's device plug-in counts a GPU several times."""
NO_INODES = "no-inodes"
"""A file system has space and no inodes."""
HOLDS = "holds-gpu-memory"
"""A list of processes says who holds a GPU's memory."""
TOLD_TWICE = "rank-told-twice"
"""Printed environments give two processes the same rank."""
