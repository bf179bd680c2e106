"""The faults of a start, by name; importing the rooms fills the table."""

from __future__ import annotations

from . import addresses, earlier, files, healthy, layout, network, ranks, ray, storage, versions
from .base import FAULTS, Fault

__all__ = [
    "FAULTS",
    "Fault",
    "addresses",
    "earlier",
    "files",
    "healthy",
    "layout",
    "network",
    "ranks",
    "ray",
    "storage",
    "versions",
]
