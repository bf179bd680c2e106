"""The alerts, once: what fires, which playbook answers, in ncdiag's own series and in those of other exporters.

`rules` writes them for Prometheus, and the settings of `ncdiag oncall` that lead each to its playbook; docs/automation holds both as
examples, written by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ncdiag.metrics.gpu import REASONS

HELD_DOWN = "|".join(reason for reason in REASONS if reason not in ("sw_power_cap", "sync_boost"))
"""A power cap under full load is usual; the others are never wanted."""


@dataclass(frozen=True)
class Limits:
    """What people may set."""

    ttft_p95_s: float = 5.0
    queue: int = 10
    kv_usage: float = 0.95


@dataclass(frozen=True)
class Alert:
    name: str
    own: str
    """Over the series of `names.SERIES`; empty where ncdiag does not measure it."""
    others: str
    """The same over node_exporter (node_), DCGM exporter (DCGM_FI_) and vLLM's own /metrics (vllm:)."""
    wait: str
    """How long it must hold before the alert fires; empty: at once."""
    severity: str
    playbook: str
    summary: str
    """May name labels that `own` and `others` both have, or that may be empty."""
    by_cause: bool = False
    """The label `cause`, where it is not empty, names the playbook."""


def alerts(limits: Limits) -> list[Alert]:
    """In the order in which `ncdiag oncall` compares them."""
    return [*_network(), *_gpus(), *_node(), *_engine(limits)]


def _network() -> list[Alert]:
    device = "{{ $labels.device }} port {{ $labels.port }} on {{ $labels.instance }}"
    others_loss = " or ".join(
        f"increase(node_infiniband_{name}_total[5m]) > 0"
        for name in (
            "port_receive_errors",
            "port_transmit_discarded",
            "symbol_error",
            "link_error_recovery",
            "local_link_integrity_errors",
            "excessive_buffer_overrun_errors",
        )
    )
    return [
        Alert("RdmaLinkDowned", "increase(ncdiag_rdma_link_downed_total[5m]) > 0", "increase(node_infiniband_link_downed_total[5m]) > 0", "",
              "page", "ib-link-or-hca-fault", f"{device} lost its link"),
        Alert("RdmaReceiveErrors", 'increase(ncdiag_rdma_errors_total{kind="link", counter!="link_downed"}[5m]) > 0', others_loss, "",
              "page", "ib-link-or-hca-fault", f"{device} has link errors {{{{ $labels.counter }}}}"),
        Alert("RdmaPacketLoss", 'increase(ncdiag_rdma_errors_total{kind="loss", layer!="Ethernet"}[5m]) > 0', "", "",
              "page", "ib-link-or-hca-fault", f"{device} loses packets: {{{{ $labels.counter }}}}"),
        Alert("RocePacketLoss", 'increase(ncdiag_rdma_errors_total{kind="loss", layer="Ethernet"}[5m]) > 0', "", "",
              "page", "roce-lossless-missing", f"{device} loses packets: {{{{ $labels.counter }}}}"),
        Alert("RdmaCounterStuck", "ncdiag_rdma_counter_stuck == 1", "", "10m",
              "warn", "ib-link-or-hca-fault", f"{{{{ $labels.counter }}}} of {device} stands at its maximum: reset it, or errors go unseen"),
        Alert("RdmaPortDown", "ncdiag_rdma_port_active == 0 and on (instance, device, port) max_over_time(ncdiag_rdma_port_active[1d]) == 1",
              "", "1m", "page", "ib-link-or-hca-fault", f"{device} is not active any more"),
    ]  # fmt: skip


def _gpus() -> list[Alert]:
    gpu = "GPU {{ $labels.gpu }} on {{ $labels.instance }}"
    return [
        Alert("GpuXid", 'increase(ncdiag_gpu_xid_total{kind!="software"}[10m]) > 0', "DCGM_FI_DEV_XID_ERRORS > 0", "",
              "page", "gpu-hardware-fault", f"{gpu} reported an Xid"),
        Alert("GpuThrottled", f'max by (instance, gpu, busid) (max_over_time(ncdiag_gpu_throttle{{reason=~"{HELD_DOWN}"}}[1m])) == 1',
              "increase(DCGM_FI_DEV_THERMAL_VIOLATION[5m]) > 0 or increase(DCGM_FI_DEV_POWER_VIOLATION[5m]) > 0", "5m",
              "warn", "gpu-throttled", f"{gpu} is held down"),
    ]  # fmt: skip


def _node() -> list[Alert]:
    return [
        Alert("DiskAlmostFull", "", 'node_filesystem_avail_bytes{mountpoint=~"/|/tmp|/var"} / node_filesystem_size_bytes < 0.05', "5m",
              "page", "disk-full", "{{ $labels.mountpoint }} on {{ $labels.instance }} has less than 5 % free"),
        Alert("ClockOffset", "", "abs(node_timex_offset_seconds) > 0.05 or node_timex_sync_status == 0", "10m",
              "warn", "clock-skew", "the clock of {{ $labels.instance }} is off"),
        Alert("RankMissing", "ncdiag_node_ranks < ncdiag_node_ranks_expected or (ncdiag_node_ranks_expected unless ncdiag_node_ranks)", "", "2m",
              "page", "rank-missing", "{{ $labels.instance }} holds fewer ranks than it should: {{ $value }}"),
        Alert("NodeNotWatched", 'up{job="ncdiag"} == 0', 'up{job=~"node|dcgm|vllm"} == 0', "2m",
              "page", "triage", "{{ $labels.instance }} does not answer Prometheus"),
        Alert("SourceNotRead", "ncdiag_up == 0 and on (instance, source, target) max_over_time(ncdiag_up[1d]) == 1", "", "5m",
              "warn", "triage", "{{ $labels.source }} {{ $labels.target }} on {{ $labels.instance }} could be read today and cannot now"),
        Alert("PreflightFailed", 'sum by (instance, node, cause, probe, device) (ncdiag_finding{status="fail"}) > 0', "", "",
              "page", "triage", "{{ $labels.probe }} on {{ $labels.node }} fails: see playbook {{ $labels.cause }}", by_cause=True),
        Alert("PreflightOld", "time() - ncdiag_findings_time_seconds > 7200", "", "10m",
              "warn", "triage", "{{ $labels.instance }} was last judged {{ $value | humanizeDuration }} ago"),
    ]  # fmt: skip


def _engine(limits: Limits) -> list[Alert]:
    buckets = "sum by (instance, target, model, le) (rate(ncdiag_engine_time_to_first_token_seconds_bucket[5m]))"
    theirs = "sum by (instance, model_name, le) (rate(vllm:time_to_first_token_seconds_bucket[5m]))"
    usage = f"{limits.kv_usage:g}"
    engine = "{{ or $labels.target $labels.instance }}"
    return [
        Alert("EngineQueueLong", f"ncdiag_engine_requests_waiting > {limits.queue}", f"vllm:num_requests_waiting > {limits.queue}", "5m",
              "page", "triage", f"{{{{ $value }}}} requests wait at {engine}"),
        Alert("EngineTtftSlow", f"histogram_quantile(0.95, {buckets}) > {limits.ttft_p95_s:g}", f"histogram_quantile(0.95, {theirs}) > {limits.ttft_p95_s:g}", "5m",
              "page", "triage", f"one request in twenty at {engine} waits more than {{{{ $value | humanizeDuration }}}} for its first token"),
        Alert("EngineKvCacheFull", f"ncdiag_engine_kv_cache_usage_ratio > {usage}", f"vllm:kv_cache_usage_perc > {usage} or vllm:gpu_cache_usage_perc > {usage}", "10m",
              "warn", "triage", f"the KV cache at {engine} is used to {{{{ $value | humanizePercentage }}}}"),
    ]  # fmt: skip
