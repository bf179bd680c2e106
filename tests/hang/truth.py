"""What was really the matter in each run of the vLLM lab, and how much of it processes, stacks and sockets can carry.

`causes`: what may stand first, the best one at the head. `culprit`: (node, rank) where one is to blame. `honest`: what may stand
first instead because the run's end shows only consequences (the ranks had exited) or was not measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from ncdiag.hang import Verdict


@dataclass(frozen=True)
class Truth:
    """One run."""

    causes: tuple[str, ...]
    culprit: tuple[str, int | None] | None = None
    honest: tuple[str, ...] = ()


FINE = ("healthy", "slow-not-hung")
GONE = ("rank-died", "unresolved", "rank-missing")
A, B = "node-a", "node-b"

TRUTH = {
    "F-f01_master_drop-long": Truth(("bootstrap-blocked-firewall",), None, GONE),
    "F-f01c_master_wrong_port": Truth(("bootstrap-peer-unreachable",), (B, 1)),
    "F-f01d_master_unroutable": Truth(("node-ip-wrong-interface",), (B, 1)),
    "F-f02a_ifname_missing": Truth(("socket-ifname-wrong",), (B, 1), GONE),
    "F-f02c2_ifname_docker0_rank0": Truth(FINE),
    "F-f02c_ifname_docker0_one": Truth(FINE),
    "F-f02d2_ifname_unroutable_rank0": Truth(FINE),
    "F-f02d_ifname_unroutable-long": Truth(FINE),
    "F-f02i_ifname_low_one": Truth(("socket-ifname-wrong",), (B, 1)),
    "F-f02j_ifname_low_rank0_blackhole-long": Truth(("socket-ifname-wrong",), (A, 0), GONE),
    "F-f03a_hostip_lo_node0": Truth(("node-ip-wrong-interface",), (A, 0)),
    "F-f03c_hostip_foreign_node0": Truth(("node-ip-wrong-interface",), (A, None), GONE),
    "F-f04a_missing_node": Truth(("rank-missing",)),
    "F-f04a_missing_node-long": Truth(("rank-missing",), None, GONE),
    "F-f04a_missing_node-to15": Truth(("rank-missing",), None, GONE),
    "F-f05a_sigstop_load_rank1": Truth(("rank-stopped",), (B, 1)),
    "F-f05a_sigstop_load_rank1-to20": Truth(("rank-stopped",), (B, 1)),
    "F-f05b_sigstop_load_rank0": Truth(("rank-stopped",), (A, 0)),
    "F-f05d_kill9_load_rank1": Truth(("rank-died",), None),
    "F-f06a_model_path_missing": Truth(("model-path-missing",), None, GONE),
    "F-f06c_weights_truncated": Truth(("weights-corrupt",), None, GONE),
    "F-f06d_different_model": Truth((*FINE, "model-path-missing")),
    "F-f07_vllm_version_skew": Truth((*FINE, "version-mismatch")),
    "F-f08a_slow_disk": Truth(("slow-not-hung", "storage-slow")),
    "F-f08c_fuse_slow": Truth((*FINE, "storage-slow")),
    "F-f09a_shm_64k": Truth(("shm-too-small",), None, GONE),
    "F-f09c_shm_64k_two_nodes": Truth(FINE),
    "F-f10a_gloo_b_to_a_drop-long": Truth(("bootstrap-blocked-firewall",), None, GONE),
    "F-f10a_gloo_b_to_a_drop-to10": Truth(("bootstrap-blocked-firewall",), None, GONE),
    "F-f11_dns_stall": Truth((*FINE, "dns-unresponsive"), None, ("unresolved",)),
    "F-f13_jumbo_mtu": Truth(FINE),
    "F-f14_link_down_in_load": Truth(("bootstrap-peer-unreachable",)),
    "F-r04_ray_hostip_wrong": Truth(FINE),
    "F-r06_ray_gloo_decoy": Truth(FINE),
    "F-r07_ray_ephemeral_drop": Truth(("bootstrap-blocked-firewall",)),
    "F-r08_ray_plugin_missing_on_b": Truth(("engine-exception", "version-mismatch"), None, GONE),
    "F-r09_ray_raylet_stop": Truth(("rank-stopped", "ray-node-lost", "ray-resources-infeasible"), (B, None)),
    "F-r10_ray_legacy_baseline": Truth(FINE),
    "clean-mpn-tp2": Truth(FINE),
    "clean-ray2-tp2": Truth(FINE),
    "clean-tp2": Truth(FINE),
    "mpn-pp2": Truth(FINE),
    "mpn-tp2": Truth(FINE),
    "mpn-tp2-b": Truth(FINE),
    "pp2": Truth(FINE),
    "ray1-noplat": Truth(("engine-exception", "version-mismatch"), None, GONE),
    "ray1-tp2": Truth(FINE),
    "ray2-pp2": Truth(FINE),
    "ray2-tp2": Truth(FINE),
    "stage-pp2-warm": Truth(FINE),
    "stage-tp2-compile": Truth(FINE),
    "stage-tp2-warm": Truth(FINE),
    "tp2": Truth(FINE),
    "tp2-nosample": Truth(FINE),
}

MIDWAY = {
    "F-f01_master_drop-long": 900.0,
    "F-f04a_missing_node-long": 900.0,
    "F-f10a_gloo_b_to_a_drop-long": 300.0,
    "F-f02j_ifname_low_rank0_blackhole-long": 300.0,
    "F-f10a_gloo_b_to_a_drop-to10": 80.0,
    "F-f04a_missing_node-to15": 60.0,
    "F-f05a_sigstop_load_rank1-to20": 80.0,
}
"""Runs that ended in an error: seconds at which they still hung. Sockets were not read then."""


def check(verdict: Verdict, truth: Truth) -> None:
    """That a verdict says what was the matter, or honestly less; never something else, never with certainty."""
    first = verdict.causes[0]
    assert first.cause in truth.causes + truth.honest, verdict.summary
    if first.cause in truth.causes and truth.culprit is not None:
        assert [(rank.node, rank.rank) for rank in verdict.culprits][:1] == [truth.culprit], verdict.summary
    if first.cause not in truth.causes:
        assert first.confidence != "sure"
