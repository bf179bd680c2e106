"""Every series that ncdiag writes by `ncdiag metrics`: name, kind, help, labels. Rules and dashboard use these and no others."""

from __future__ import annotations

from typing import NamedTuple


class Series(NamedTuple):
    kind: str
    """`gauge`, `counter` or `histogram`."""
    help: str
    labels: tuple[str, ...] = ()


_PORT = ("device", "port")
_NIC = ("device",)
_GPU = ("gpu", "busid")
_ENGINE = ("target", "model", "engine")

SERIES = {
    "ncdiag_up": Series("gauge", "1: the source was read. 0: it was not, or not all of it: what could not be read is missing, not zero.", ("source", "target")),
    "ncdiag_source_down": Series("gauge", "1 with the reason why a source was not read.", ("source", "target", "reason")),
    "ncdiag_rdma_port_active": Series("gauge", "1: the port's state is ACTIVE.", _PORT),
    "ncdiag_rdma_port_rate_bits_per_second": Series("gauge", "Rate of the link.", _PORT),
    "ncdiag_rdma_sent_bytes_total": Series("counter", "Bytes sent by RDMA.", _PORT),
    "ncdiag_rdma_received_bytes_total": Series("counter", "Bytes received by RDMA.", _PORT),
    "ncdiag_rdma_sent_packets_total": Series("counter", "Packets sent by RDMA.", _PORT),
    "ncdiag_rdma_received_packets_total": Series("counter", "Packets received by RDMA.", _PORT),
    "ncdiag_rdma_link_downed_total": Series("counter", "Times that the link went down.", _PORT),
    "ncdiag_rdma_errors_total": Series(
        "counter", "Error counters by kind. link: cable, optics, port; loss: lost packets; late: the receiver was not ready; order: reordered, no fault under adaptive routing.",
        (*_PORT, "counter", "kind", "layer"),
    ),
    "ncdiag_rdma_counter_stuck": Series("gauge", "1: the counter stands at its maximum and counts no further.", (*_PORT, "counter")),
    "ncdiag_rdma_counter_unread": Series("gauge", "Counters of the port that gave an error or no number.", _PORT),
    "ncdiag_nic_up": Series("gauge", "1: operstate is up.", _NIC),
    "ncdiag_nic_speed_bits_per_second": Series("gauge", "Speed of the link; missing where the driver does not tell it.", _NIC),
    "ncdiag_nic_sent_bytes_total": Series("counter", "Bytes sent.", _NIC),
    "ncdiag_nic_received_bytes_total": Series("counter", "Bytes received.", _NIC),
    "ncdiag_nic_errors_total": Series("counter", "Error counters of the interface.", (*_NIC, "counter")),
    "ncdiag_nic_carrier_changes_total": Series("counter", "Times that the carrier came or went.", _NIC),
    "ncdiag_gpu_clock_hertz": Series("gauge", "Clock now.", (*_GPU, "clock")),
    "ncdiag_gpu_clock_max_hertz": Series("gauge", "Highest clock of the part.", (*_GPU, "clock")),
    "ncdiag_gpu_throttle": Series("gauge", "1: the clocks are held down for this reason.", (*_GPU, "reason")),
    "ncdiag_gpu_power_watts": Series("gauge", "Power drawn.", _GPU),
    "ncdiag_gpu_power_limit_watts": Series("gauge", "Power limit in force.", _GPU),
    "ncdiag_gpu_temperature_celsius": Series("gauge", "Temperature.", _GPU),
    "ncdiag_gpu_utilization_ratio": Series("gauge", "Share of the time in which a kernel ran.", _GPU),
    "ncdiag_gpu_memory_used_bytes": Series("gauge", "Memory in use.", _GPU),
    "ncdiag_gpu_memory_total_bytes": Series("gauge", "Memory there is.", _GPU),
    "ncdiag_gpu_xid_total": Series("counter", "Xid events that NVML told since this exporter began. Only `serve` can count them.", (*_GPU, "kind")),
    "ncdiag_gpu_last_xid": Series("gauge", "Code of the last Xid event since this exporter began.", _GPU),
    "ncdiag_finding": Series("gauge", "Findings of one probe at one place that are not ok.", ("probe", "status", "cause", "node", "device")),
    "ncdiag_findings": Series("gauge", "Findings by status.", ("status",)),
    "ncdiag_findings_time_seconds": Series("gauge", "When the nodes were last judged, in seconds since 1970."),
    "ncdiag_node_ranks": Series("gauge", "Processes on this node that hold a rank of an engine."),
    "ncdiag_node_ranks_expected": Series("gauge", "Ranks that --ranks says this node should hold."),
    "ncdiag_engine_requests_waiting": Series("gauge", "Requests that wait.", _ENGINE),
    "ncdiag_engine_requests_running": Series("gauge", "Requests in execution.", _ENGINE),
    "ncdiag_engine_kv_cache_usage_ratio": Series("gauge", "Share of the KV cache in use.", _ENGINE),
    "ncdiag_engine_preemptions_total": Series("counter", "Requests put back for want of KV cache.", _ENGINE),
    "ncdiag_engine_prefix_cache_queries_total": Series("counter", "Looked up in the prefix cache: tokens, or blocks, as the version counts.", _ENGINE),
    "ncdiag_engine_prefix_cache_hits_total": Series("counter", "Of these, found.", _ENGINE),
    "ncdiag_engine_prompt_tokens_total": Series("counter", "Prompt tokens processed.", _ENGINE),
    "ncdiag_engine_generation_tokens_total": Series("counter", "Tokens generated.", _ENGINE),
    "ncdiag_engine_requests_finished_total": Series("counter", "Requests finished, by reason.", (*_ENGINE, "reason")),
    "ncdiag_engine_time_to_first_token_seconds": Series("histogram", "Time to the first token.", _ENGINE),
    "ncdiag_engine_inter_token_latency_seconds": Series("histogram", "Time between tokens.", _ENGINE),
    "ncdiag_engine_request_latency_seconds": Series("histogram", "Time of a whole request.", _ENGINE),
}  # fmt: skip
"""A series without a label it has in the table is written with that label empty."""
