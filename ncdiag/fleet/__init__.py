"""Where ncdiag reaches nodes: local, ssh, ray, slurm, k8s, file."""

from __future__ import annotations

from ncdiag.fleet.base import Fleet, FleetError, Request

__all__ = ["Fleet", "FleetError", "Request", "open_fleet"]


def open_fleet(spec: str, *, ssh_user: str | None = None, ssh_config: str | None = None) -> Fleet:
    """The fleet that `spec` names. Backends are imported when they are named. Raises FleetError."""
    kind, _, rest = spec.partition(":")
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
        f"--nodes {spec}: not a fleet; use local, ssh:NODESET, ssh:@HOSTFILE, ray, ray:ADDRESS, slurm, slurm:JOBID, "
        "k8s:NAMESPACE/SELECTOR or file:SNAPSHOT"
    )
