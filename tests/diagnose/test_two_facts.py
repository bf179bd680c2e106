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
