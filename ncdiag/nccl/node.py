"""What a snapshot says about one node, as NCCL's rules need it. Pure; travels to nodes."""

from __future__ import annotations

from typing import Dict, List, Optional

from ncdiag.model import Snapshot
from ncdiag.nccl import environment
from ncdiag.nccl.environment import Setting
from ncdiag.nccl.interfaces import Address, local_addresses
from ncdiag.nccl.version import Version, parse_version


def settings(snapshot: Snapshot, node: str) -> Optional[Dict[str, Setting]]:
    """The NCCL variables that hold there, parameter files included; None when the environment was not read."""
    environ = (snapshot.facts(node, "nccl-environment") or {}).get("environ")
    if environ is None:
        return None
    return environment.effective(environ, (snapshot.facts(node, "nccl-conf-files") or {}).get("files", ()))


def release(snapshot: Snapshot, node: str) -> Optional[Version]:
    """The NCCL of that node: of the library found there, else what the plan says; None when neither tells."""
    libraries = (snapshot.facts(node, "nccl-library") or {}).get("libraries") or [{}]
    told = libraries[0].get("version") or snapshot.plan.nccl_version
    return parse_version(told) if told else None


def addresses(snapshot: Snapshot, node: str) -> List[Address]:
    """Its addresses in getifaddrs order; empty when they were not read."""
    return local_addresses(snapshot.facts(node, "interfaces"))


def several(snapshot: Snapshot) -> bool:
    """Whether the engine is to run on more than one node, as far as that is known."""
    return len(snapshot.nodes) > 1 or (snapshot.plan.nodes or 1) > 1
