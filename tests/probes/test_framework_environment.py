from __future__ import annotations

import time
from typing import Any

import pytest

from ncdiag.host import Host, Recorded
from ncdiag.model import Plan
from ncdiag.nccl.frameworks import known, slip
from ncdiag.tree import MemoryTree
from tests.probes.judging import collected, judged


def found(*environs: dict[str, str] | None, plan: Plan | None = None) -> list[tuple[str, str | None, str | None]]:
    nodes: dict[str, dict[str, Any]] = {
        f"n{number}": {"framework-environment": {"environ": environ, "reason": "Permission denied", "absent": []}}
        for number, environ in enumerate(environs)
    }
    return [
        (finding.status.value, finding.where.get("setting"), finding.cause)
        for finding in judged("framework-environment", nodes, plan)
    ]


ENV, GPU = "env-unknown-or-invalid", "visible-devices-conflict"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ("ok", None, None)),
        (None, ("unknown", None, None)),
        (
            {"VLLM_LOGGING_LEVEL": "DEBUG", "RAY_ADDRESS": "192.0.2.1:6379", "CUDA_VISIBLE_DEVICES": "0,1"},
            ("ok", None, None),
        ),
        (
            {"VLLM_BRAND_NEW_SWITCH": "1", "RAY_some_new_flag": "1", "TORCH_NCCL_SOMETHING_ELSE": "1"},
            ("ok", None, None),
        ),
        ({"VLLM_HOSTIP": "192.0.2.1"}, ("warn", "VLLM_HOSTIP", ENV)),
        ({"VLLM_HOST_lP": "192.0.2.1"}, ("warn", "VLLM_HOST_lP", ENV)),
        ({"VLLM_LOGING_LEVEL": "DEBUG"}, ("warn", "VLLM_LOGING_LEVEL", ENV)),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLNG": "1"}, ("warn", "TORCH_NCCL_ASYNC_ERROR_HANDLNG", ENV)),
        ({"GLOO_SOCKET_IF_NAME": "eth0"}, ("warn", "GLOO_SOCKET_IF_NAME", ENV)),
        ({"RAY_MEMORY_MONITOR_REFRESH_MS": "0"}, ("warn", "RAY_MEMORY_MONITOR_REFRESH_MS", ENV)),
        ({"VLLM_PORT": "tcp://10.96.0.7:8000"}, ("fail", "VLLM_PORT", ENV)),
        ({"VLLM_PORT": "eight"}, ("fail", "VLLM_PORT", ENV)),
        ({"VLLM_PORT": "8000"}, ("warn", "VLLM_PORT", "port-in-use")),
        ({"VLLM_PORT": "21000"}, ("ok", None, None)),
        ({"VLLM_SERVICE_HOST": "10.96.0.7", "VLLM_PORT_8000_TCP": "tcp://10.96.0.7:8000"}, ("ok", None, None)),
        ({"VLLM_ENGINE_READY_TIMEOUT_S": "10m"}, ("fail", "VLLM_ENGINE_READY_TIMEOUT_S", ENV)),
        ({"VLLM_WORKER_MULTIPROC_METHOD": "thread"}, ("fail", "VLLM_WORKER_MULTIPROC_METHOD", ENV)),
        ({"HOST_IP": "192.0.2.1"}, ("warn", "HOST_IP", "node-ip-wrong-interface")),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, ("warn", "CUDA_LAUNCH_BLOCKING", ENV)),
        ({"CUDA_LAUNCH_BLOCKING": "0"}, ("ok", None, None)),
        ({"TORCH_DISTRIBUTED_DEBUG": "detail"}, ("warn", "TORCH_DISTRIBUTED_DEBUG", ENV)),
        ({"TORCH_DISTRIBUTED_DEBUG": "2"}, ("fail", "TORCH_DISTRIBUTED_DEBUG", ENV)),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, ("warn", "TORCH_NCCL_ASYNC_ERROR_HANDLING", ENV)),
        ({"GLOO_SOCKET_IFNAME": "^docker0"}, ("fail", "GLOO_SOCKET_IFNAME", "socket-ifname-wrong")),
        ({"GLOO_SOCKET_IFNAME": "eth0"}, ("ok", None, None)),
        ({"CUDA_VISIBLE_DEVICES": ""}, ("fail", "CUDA_VISIBLE_DEVICES", GPU)),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, ("fail", "CUDA_VISIBLE_DEVICES", GPU)),
        ({"CUDA_VISIBLE_DEVICES": "0,1,x,3"}, ("warn", "CUDA_VISIBLE_DEVICES", GPU)),
        ({"CUDA_VISIBLE_DEVICES": "0,0"}, ("fail", "CUDA_VISIBLE_DEVICES", GPU)),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1b2c3d4e-0000-1111-2222-333344445555"}, ("ok", None, None)),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, ("warn", "HIP_VISIBLE_DEVICES", GPU)),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, ("warn", "NVIDIA_VISIBLE_DEVICES", GPU)),
        ({"RANK": "4", "WORLD_SIZE": "4"}, ("fail", "RANK", "rank-layout-wrong")),
        ({"RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}, ("warn", "RAY_JOB_CONFIG_JSON_ENV_VAR", "ray-nested-environment")),
    ],
)
def test_one_node(environ: dict[str, str] | None, expected: tuple[str, str | None, str | None]) -> None:
    assert found(environ) == [expected]


def test_the_plan_counts() -> None:
    assert found({"CUDA_VISIBLE_DEVICES": "0,1"}, plan=Plan(gpus_per_node=4)) == [("fail", "CUDA_VISIBLE_DEVICES", GPU)]
    assert found({"HF_HUB_OFFLINE": "1"}, plan=Plan(model="org/model")) == [
        ("warn", "HF_HUB_OFFLINE", "model-path-missing")
    ]
    assert found({"HF_HUB_OFFLINE": "1"}, plan=Plan(model="/models/model"))[0][0] == "ok"


def test_the_sizes_of_the_engine_count_on_one_node() -> None:
    """Several nodes may share the ranks unevenly, so there the sum of their GPUs is what counts (gpu-health)."""
    few = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    assert [status for status, _, _ in found(few, plan=Plan(tp=8))] == ["fail"]
    assert "fail" not in [status for status, _, _ in found(few, few, plan=Plan(tp=8))]
    assert "fail" not in [status for status, _, _ in found(few, plan=Plan(tp=4))]


def test_between_nodes() -> None:
    assert found({"VLLM_USE_V1": "1"}, {})[-1] == ("warn", "VLLM_USE_V1", ENV)
    assert [entry[0] for entry in found({"VLLM_HOST_IP": "192.0.2.1"}, {"VLLM_HOST_IP": "192.0.2.2"})] == ["ok", "ok"]
    assert found({"RANK": "0", "WORLD_SIZE": "2"}, {"RANK": "0", "WORLD_SIZE": "2"})[-1] == (
        "warn",
        "RANK",
        "rank-layout-wrong",
    )


def test_real_names_are_no_slips_of_each_other() -> None:
    vllm, others = known()
    assert len(vllm) > 300
    names = [*vllm, *others]
    for name in (
        "VLLM_USE_FLASHINFER_MOE_FP32",
        "VLLM_DP_MASTER_HOST",
        "RAY_raylet_heartbeat_period_milliseconds",
        "RAY_TIMEOUT",
    ):
        assert slip(name, names) is None


def test_live_is_cheap_and_keeps_only_what_it_needs() -> None:
    host = Host(
        environment={
            "VLLM_HOST_IP": "192.0.2.1",
            "MY_SECRET": "x",
            "VLLM_API_KEY": "abcdefgh",
            "LD_PRELOAD": "/nowhere/lib.so",
        }
    )
    begun = time.process_time()
    facts = collected("framework-environment", host)
    (finding, *_) = judged("framework-environment", {"a": {"framework-environment": facts}})
    assert time.process_time() - begun < 0.2
    assert (
        facts["absent"] == ["/nowhere/lib.so"] and "MY_SECRET" not in facts["environ"] and "abcdefgh" not in str(facts)
    )
    assert finding.status.value == "warn" and finding.where["setting"] == "LD_PRELOAD"


def test_not_recorded_is_unknown() -> None:
    facts: Any = collected("framework-environment", Recorded(MemoryTree()))
    assert [
        entry.status.value for entry in judged("framework-environment", {"a": {"framework-environment": facts}})
    ] == ["unknown"]
