"""Where ncdiag reaches nodes: local, ssh, ray, slurm, k8s, file."""

from __future__ import annotations

import re

from ncdiag.fleet.base import Fleet, FleetError, Request

_PART = re.compile(r",(?=(?:ssh|ray|slurm|k8s|file):|local(?:,|$))")
"""Where another kind of fleet begins."""

KINDS = ("local", "ssh", "ray", "slurm", "k8s", "file")
__all__ = ["KINDS", "Fleet", "FleetError", "Request", "open_fleet", "over_ssh"]


def open_fleet(spec: str, *, ssh_user: str | None = None, ssh_config: str | None = None) -> Fleet:
    """The fleet that `spec` names. Backends are imported when they are named. Raises FleetError."""
    kind, _, rest = _of_one_kind(spec).partition(":")
    if kind == "local" and not rest:
        from ncdiag.fleet.local import LocalFleet

        return LocalFleet()
    if kind == "ssh" and rest:
        from ncdiag.fleet.ssh import SshFleet

        return SshFleet(rest, user=ssh_user, config=ssh_config)
    if kind == "ray":
        from ncdiag.fleet.ray import RayFleet

        return RayFleet(rest)
    if kind == "slurm":
        from ncdiag.fleet.slurm import SlurmFleet

        return SlurmFleet(rest)
    if kind == "k8s" and rest:
        from ncdiag.fleet.k8s import K8sFleet

        return K8sFleet(rest)
    if kind == "file" and rest:
        from ncdiag.fleet.file import FileFleet

        return FileFleet([path for path in rest.split(",") if path])
    raise FleetError(
        f"--nodes {spec}: {over_ssh(spec) or 'not a fleet; '}use local, ssh:NODESET, ssh:@HOSTFILE, ray, ray:ADDRESS, slurm, slurm:JOBID, "
        "k8s:NAMESPACE/SELECTOR or file:SNAPSHOT"
    )


def over_ssh(spec: str) -> str:
    """The way out for names of hosts that stand alone, as `ssh:gpu01` without its `ssh:`, with what goes on behind it; empty for anything else."""
    names = all(one and "/" not in one and ":" not in one for one in spec.split(",")) and spec not in KINDS
    return f"no kind of fleet is named; for hosts over SSH write --nodes ssh:{spec}. Else " if names else ""


def _of_one_kind(spec: str) -> str:
    """`ssh:a,ssh:b` as `ssh:a,b`. Raises FleetError where kinds are mixed: they are reached, and judged, in different ways."""
    first, *others = _PART.split(spec)
    kinds = [part.partition(":")[0] for part in (first, *others)]
    if others and (len(set(kinds)) > 1 or kinds[0] not in ("ssh", "file")):
        raise FleetError(
            f"--nodes {spec}: {' and '.join(dict.fromkeys(kinds))} cannot be joined; name all nodes in one way, as ssh:localhost,gpu02, "
            "or collect each part (ncdiag collect -o A.json) and judge --nodes file:A.json,B.json"
        )
    return ",".join([first, *(other.partition(":")[2] for other in others)])
