"""Two facts that mean together what neither says alone."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause


def causes(*lines: str, **files: str) -> list[Cause]:
    texts = {"job.log": "\n".join([*lines, ""]), **files}
    return of_streams(
        Stream(name, iter([text.encode()]), text.encode()) for name, text in texts.items() if text.strip()
    ).verdict.causes


def firsts(found: list[Cause]) -> tuple[str, str]:
    return found[0].cause, found[0].confidence


UNACKNOWLEDGED = "1: n13:812:967 [1] transport/net_ib.cc:1698 NCCL WARN NET/IB : Got completion from peer 192.0.2.14<45210> with status=12 opcode=0 len=0 vendor err 129 (Send)"
CRASHED = "srun: error: n14: task 5: Segmentation fault (core dumped)"
KERNEL = "[Feb19 03:15] python[1332]: segfault at 18 ip 00007f4e1a8c3f1d sp 00007f4c2effcd60 error 4 in libclip.so[7f4e1a85c000+1a2000]"


def test_a_crash_before_packets_are_not_acknowledged_comes_first() -> None:
    found = causes(CRASHED, UNACKNOWLEDGED)
    assert firsts(found) == ("rank-died", "likely") and found[0].where == {"node": "n14", "rank": 5}
    assert "ib-path-unreachable" not in [cause.cause for cause in found]


def test_a_crash_of_another_file_leaves_the_path_possible() -> None:
    found = causes(UNACKNOWLEDGED, dmesg=KERNEL + "\n")
    assert firsts(found) == ("rank-died", "likely")
    assert ("ib-path-unreachable", "possible") in [(cause.cause, cause.confidence) for cause in found]


@pytest.mark.parametrize(
    "lines",
    [[UNACKNOWLEDGED, CRASHED], [UNACKNOWLEDGED, KERNEL.replace("1332", "812")], [UNACKNOWLEDGED, CRASHED.replace("Segmentation fault", "Aborted")]],
    ids=["afterwards", "of who tells of it", "an abort"],
)  # fmt: skip
def test_a_crash_that_may_follow_is_not_the_first(lines: list[str]) -> None:
    assert causes(*lines)[0].cause == "ib-path-unreachable"


REFUSED = [
    "[2030-08-12 11:20:14,480 W 903 903] gcs_rpc_client.h:153: Failed to connect to GCS at address 192.0.2.11:6379 within 5 seconds.",
    "E0000 00:00:1786533614.476110     903 ssl_transport_security.cc:1656] Handshake failed with fatal error SSL_ERROR_SSL: error:1000007d:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED",
]


def test_refused_certificates_and_a_clock_that_nobody_keeps() -> None:
    found = causes(*REFUSED, "System clock synchronized: no")
    assert firsts(found) == ("clock-skew", "likely") and "certificate" in found[0].summary
    assert causes(*REFUSED, "System clock synchronized: yes")[0].cause != "clock-skew"
    assert causes(REFUSED[0], "System clock synchronized: no")[0].cause == "ray-gcs-unreachable"


def served(version: str) -> str:
    return f"""(APIServer pid=1) INFO 02-11 09:02:44 [api_server.py:1272] vLLM API server version {version}
(APIServer pid=1) INFO:     Application startup complete.
"""


HASHES = "(Worker_TP0 pid=340) ERROR 02-11 09:14:22 [nixl_connector.py:1003] RuntimeError: NIXL compatibility hash mismatch. Local: 9f0e34c1, Remote: 4b77c10a.\n"


def test_engines_that_refuse_each_other_are_of_one_job() -> None:
    found = causes(prefill=served("0.13.0"), decode=served("0.14.0") + HASHES)
    assert firsts(found) == ("version-mismatch", "likely") and "0.13.0 and 0.14.0" in found[0].summary
    assert causes(prefill=served("0.13.0"), decode=served("0.14.0"))[0].cause == "healthy"
    same = causes(prefill=served("0.14.0"), decode=served("0.14.0") + HASHES)
    assert ("version-mismatch", "likely") not in [(cause.cause, cause.confidence) for cause in same]


COUNTED = "/sys/class/infiniband/mlx5_2/ports/1/hw_counters/packet_seq_err: 40211 -> 9910774"
WAITED = "/sys/class/infiniband/mlx5_2/ports/1/hw_counters/local_ack_timeout_err: 118 -> 20417"
UNPROTECTED = ["PFC configuration:", "\tpriority    0   1   2   3   4   5   6   7", "\tenabled     0   0   0   0   0   0   0   0"]  # fmt: skip


def test_packets_that_are_lost_under_load() -> None:
    assert firsts(causes(UNACKNOWLEDGED, COUNTED, *UNPROTECTED)) == ("roce-lossless-missing", "likely")
    for less in ([COUNTED], [WAITED, *UNPROTECTED]):
        assert causes(UNACKNOWLEDGED, *less)[0].cause == "ib-path-unreachable"


FULL = "(Worker pid=4022) ERROR 10-14 09:20:34 [multiproc_executor.py:597] ValueError: Free memory on device (8.03/79.19 GiB) on startup is less than desired GPU memory utilization (0.92, 72.86 GiB)."
HOLDS = """|   0  NVIDIA H100 80GB HBM3          On  |   00000000:19:00.0 Off |                    0 |
| N/A   34C    P0            117W /  700W |   72812MiB /  81559MiB |      0%      Default |
| Processes:                                                                              |
|    0   N/A  N/A          3177      C   VLLM::Worker_TP0                      72802MiB |
"""
LEFT = "Oct 14 09:19:51 n4 systemd[1]: vllm.service: Found left-over process {} (VLLM::Worker_TP) in control group while starting unit. Ignoring."


def test_a_process_left_over_that_holds_the_memory() -> None:
    found = causes(FULL, HOLDS, LEFT.format(3177))
    assert firsts(found) == ("stale-process", "likely") and found[0].where["pid"] == 3177
    assert causes(FULL, HOLDS, LEFT.format(4000))[0].cause == "gpu-memory-occupied"


def test_a_filtered_table_of_processes_has_its_command() -> None:
    row = " 3177       1 svc      Sl   Mon Oct 13 18:02:55 2025    15:19:20 VLLM::Worker_TP0"
    users = "svc       3177       1  0 Oct13 ?        00:11:20 VLLM::Worker_TP0"
    for command, line in (("ps -eo pid,ppid,user,stat,lstart,etime,args | grep -i '[V]LLM'", row), ("ps -ef | grep VLLM", users)):  # fmt: skip
        found = causes(FULL, HOLDS, f"$ {command}", line)
        assert found[0].cause == "stale-process" and "parent 1" in found[0].summary, command
    assert causes(FULL, HOLDS, "$ ps aux | grep VLLM", users)[0].cause == "gpu-memory-occupied"


WORKS = "(APIServer pid=1) INFO:     Application startup complete.\n" + (
    '(APIServer pid=1) INFO:     192.0.2.9:41002 - "POST /v1/completions HTTP/1.1" 200 OK\n' * 2
)
KILLED = "[Tue Jan 20 09:40:17 2030] Memory cgroup out of memory: Killed process 612 ({}) total-vm:1290404kB, anon-rss:31044kB, file-rss:0kB\n"
NOISE = "[Tue Jan 20 08:11:20 2030] mlx5_core 0000:5d:00.0: mlx5_cmd_out_err:835:(pid 2110): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2), syndrome (0x9a6171), err(-22)\n"


def test_the_kernel_ends_another_program() -> None:
    assert causes(server=WORKS, dmesg=NOISE + KILLED.format("node_exporter"))[0].cause == "healthy"
    assert causes(server=WORKS, dmesg=KILLED.format("backup-tool"))[0].cause == "healthy"
    for name in ("VLLM::Worker_TP", "python3", "ray::train"):
        assert causes(dmesg=KILLED.format(name))[0].cause == "host-memory-oom"
    assert firsts(causes(dmesg=KILLED.format("node_exporter"))) == ("host-memory-oom", "possible")
    assert causes(dmesg=KILLED.format("backup-tool"))[0].confidence == "sure"


def test_firmware_that_refuses_a_register_answers() -> None:
    assert "ib-link-or-hca-fault" not in [cause.cause for cause in causes(dmesg=NOISE)]
    late = "mlx5_core 0000:5d:00.0: wait_func:1151:(pid 2110): ACCESS_REG(0x805) timeout. Will cause a leak of a command resource\n"
    assert causes(dmesg=late)[0].cause == "ib-link-or-hca-fault"


def test_a_plugin_that_cannot_be_loaded_and_a_job_over_sockets() -> None:
    lines = [
        line
        for node in (1, 2)
        for line in (
            f"{node}: n{node}:71{node}:71 [0] NCCL INFO NET/Plugin : dlerror=/opt/efa/lib/libfabric.so.1: version `FABRIC_1.7' not found (required by /opt/env/lib/libnccl-net.so) No plugin found (libnccl-net.so), using internal implementation",
            f"{node}: n{node}:71{node}:71 [0] NCCL INFO Using network Socket",
        )
    ]
    found = causes(*lines, "1: # Avg bus bandwidth    : 1.24711")
    assert firsts(found) == ("net-plugin-incompatible", "likely") and "TCP sockets" in found[0].summary
    alone = causes(*lines[:2], "1: # Avg bus bandwidth    : 91.2")
    assert alone[0].cause == "healthy"
    absent = [line.replace("/opt/efa/lib/libfabric.so.1: version `FABRIC_1.7' not found (required by /opt/env/lib/libnccl-net.so)", "libnccl-net.so: cannot open shared object file: No such file or directory") for line in lines]  # fmt: skip
    assert "net-plugin-incompatible" not in [
        cause.cause for cause in causes(*absent, "1: # Avg bus bandwidth    : 1.2")
    ]


FREE = "(EngineCore_DP0 pid=504) ValueError: Current node has no GPU available. current_node_resource={'accelerator_type:T4': 1.0, 'CPU': 112.0}. vLLM engine cannot start without GPU."


def test_a_node_of_ray_without_a_free_gpu_and_who_uses_them() -> None:
    used = "\n 0.0/224.0 CPU\n {}/2.0 GPU\n"
    assert causes(FREE, used.format("0.0"))[0].cause == "ray-driver-without-gpu"
    assert causes(FREE, used.format("2.0"))[0].cause == "ray-placement-group-leaked"
    assert causes(FREE)[0].cause == "ray-placement-group-leaked"


@pytest.mark.parametrize("model, cause", [("NVIDIA GB10", "healthy"), ("NVIDIA H100 80GB HBM3", "gdr-disabled")])
def test_gpus_without_memory_of_their_own_need_no_gpudirect(model: str, cause: str) -> None:
    found = causes(
        *[f"#  Rank  {rank} Group  0 Pid 16{rank} on   n{rank} device  0 [000f:01:00] {model}" for rank in range(2)],
        *[f"n{rank}:16{rank}:16 [0] NCCL INFO comm 0xb{rank} rank {rank} nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0" for rank in range(2)],
        *[f"n{rank}:16{rank}:16 [0] NCCL INFO ncclCommInitRank comm 0xb{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId f01000 commId 0x5be2 - Init COMPLETE" for rank in range(2)],
        "n0:160:16 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0",
        "# Avg bus bandwidth    : 21.7",
    )  # fmt: skip
    assert found[0].cause == cause


def test_a_test_that_came_to_nothing_and_the_same_with_a_setting() -> None:
    head = "# nThread 1 nGpus 2 minBytes 8388608 maxBytes 8388608 step: 1048576(bytes) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0"
    works = "# Avg bus bandwidth    : 9.31184"
    run = "timeout -k 5 180 ./all_reduce_perf -b 8M -e 8M -g 2"
    found = causes(f"$ {run}", head, "$ echo $?", "124", f"$ NCCL_P2P_DISABLE=1 {run} | tail -2", works)
    assert firsts(found) == ("p2p-broken", "likely") and "NCCL_P2P_DISABLE=1" in found[0].summary
    assert causes(f"$ {run}", head, works, f"$ NCCL_P2P_DISABLE=1 {run} | tail -2", works)[0].cause == "healthy"
