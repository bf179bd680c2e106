"""Which causes are usual consequences of which."""

from __future__ import annotations

GENERIC = frozenset(
    {
        "rank-died",
        "rank-missing",
        "engine-exception",
        "bootstrap-peer-unreachable",
        "ray-node-lost",
        "collective-desync",
        "slow-load-peer-timeout",
        "framework-version-bug",
        "ib-path-unreachable",
    }
)

FOLLOWS: dict[str, frozenset[str]] = {
    "host-memory-oom": frozenset({"ray-gcs-unreachable", "killed-by-scheduler"}),
    "killed-by-scheduler": frozenset({"ray-gcs-unreachable", "ray-resources-infeasible", "ray-placement-group-leaked"}),
    "ray-node-lost": frozenset({"ray-resources-infeasible"}),
    "bootstrap-blocked-firewall": frozenset({"ray-resources-infeasible"}),
    "gpu-hardware-fault": frozenset(
        {
            "cuda-illegal-memory-access",
            "p2p-broken",
            "driver-library-missing",
            "fabric-manager-not-running",
            "gpu-ecc-row-remap",
            "nvswitch-error",
            "nvls-multicast-failure",
            "visible-devices-conflict",
        }
    ),
    "nvswitch-error": frozenset({"cuda-illegal-memory-access", "p2p-broken", "nvls-multicast-failure"}),
    "fabric-manager-not-running": frozenset({"nvls-multicast-failure", "p2p-broken", "driver-library-missing"}),
    "ib-link-or-hca-fault": frozenset({"ib-qp-setup-failed", "rdma-unavailable", "hca-mismatch-between-nodes"}),
    "driver-library-missing": frozenset(
        {"ray-driver-without-gpu", "visible-devices-conflict", "nccl-version-mismatch", "rank-layout-wrong"}
    ),
    "driver-too-old": frozenset(
        {"driver-library-missing", "ray-driver-without-gpu", "visible-devices-conflict", "version-mismatch"}
    ),
    "memlock-limit": frozenset(
        {"launcher-transport", "rdma-memory-registration", "ib-qp-setup-failed", "rdma-unavailable"}
    ),
    "shm-too-small": frozenset({"disk-full", "cumem-failure", "container-isolation", "killed-by-scheduler"}),
    "roce-gid-wrong": frozenset({"ib-qp-setup-failed"}),
    "mixed-hca-fabrics": frozenset({"ib-qp-setup-failed", "hca-mismatch-between-nodes"}),
    "net-plugin-incompatible": frozenset({"net-fallback-slow", "net-plugin-forced-unavailable"}),
    "net-plugin-forced-unavailable": frozenset({"rdma-unavailable"}),
    "rdma-unavailable": frozenset({"net-fallback-slow", "gdr-disabled", "hca-mismatch-between-nodes"}),
    "net-fallback-slow": frozenset({"gdr-disabled"}),
    "ray-version-mismatch": frozenset({"ray-gcs-unreachable", "version-mismatch"}),
    "nccl-version-mismatch": frozenset({"version-mismatch"}),
    "ray-gcs-unreachable": frozenset({"ray-resources-infeasible", "ray-placement-group-leaked"}),
    "port-in-use": frozenset({"ray-gcs-unreachable"}),
    "disk-full": frozenset({"weights-corrupt", "model-path-missing", "ray-gcs-unreachable", "killed-by-scheduler"}),
    "gpu-memory-occupied": frozenset({"gpu-memory-exhausted", "kv-cache-no-memory", "max-len-exceeds-kv-cache"}),
    "gpu-memory-fragmented": frozenset({"gpu-memory-exhausted"}),
    "ray-placement-group-leaked": frozenset({"ray-driver-without-gpu", "ray-resources-infeasible"}),
    "node-ip-wrong-interface": frozenset(
        {"ray-resources-infeasible", "bootstrap-blocked-firewall", "socket-ifname-wrong"}
    ),
    "hostname-resolves-to-loopback": frozenset(
        {"socket-ifname-wrong", "node-ip-wrong-interface", "bootstrap-blocked-firewall"}
    ),
    "socket-ifname-wrong": frozenset({"bootstrap-blocked-firewall"}),
    "clock-skew": frozenset({"ray-node-lost", "ray-gcs-unreachable"}),
    "duplicate-gpu": frozenset({"rank-layout-wrong"}),
    "rank-layout-wrong": frozenset({"rank-missing"}),
    "visible-devices-conflict": frozenset({"parallel-size-mismatch", "rank-layout-wrong"}),
    "parallel-size-mismatch": frozenset({"ray-resources-infeasible", "rank-layout-wrong"}),
    "p2p-broken": frozenset({"cuda-illegal-memory-access"}),
    **{
        cause: frozenset({"rank-died", "rank-missing", "bootstrap-peer-unreachable"})
        for cause in (
            "collective-desync",
            "slow-load-peer-timeout",
            "ib-path-unreachable",
            "engine-exception",
            "framework-version-bug",
        )
    },
}
"""Cause -> causes that are its usual consequence. Every cause also brings about the generic ones: a dead, missing or unreachable rank."""

GOOD = ("healthy", "slow-not-hung")
ONLY_SLOWS = ("net-fallback-slow", "gdr-disabled")
"""True of jobs that work, too; nothing stands still or ends for it."""


def brings_about(cause: str, other: str) -> bool:
    """Whether `other` usually follows from `cause`."""
    if cause in (*GOOD, "unresolved"):
        return False
    if cause in ONLY_SLOWS and other in GENERIC:
        return False
    return other in FOLLOWS.get(cause, ()) or (
        other in GENERIC and cause not in GENERIC and cause not in FOLLOWS.get(other, ())
    )
