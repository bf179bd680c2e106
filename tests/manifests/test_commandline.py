from __future__ import annotations

from typing import Any

import pytest

from ncdiag.manifests.commandline import engines_of, ray_start
from ncdiag.manifests.quantity import gpus, number, rdma_names
from ncdiag.manifests.scene import guess


@pytest.mark.parametrize(
    ("container", "model", "options"),
    [
        ({"command": ["vllm", "serve", "acme/m", "-tp", "8", "--pipeline_parallel_size=2"]}, "acme/m", {"--tensor-parallel-size": "8", "--pipeline-parallel-size": "2"}),
        ({"command": ["/usr/bin/vllm", "serve"], "args": ["--model", "/m", "--port", "9000"]}, "/m", {"--port": "9000"}),
        ({"image": "vllm/vllm-openai:v1", "args": ["--model=acme/m", "--headless", "--tensor-parallel-size", "4"]}, "acme/m", {"--headless": "", "--tensor-parallel-size": "4"}),
        ({"command": ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"]}, "m", {}),
        ({"command": ["/bin/bash", "-lc", "set -e; cd /x && exec vllm serve m \\\n  --tensor-parallel-size 8 &"]}, "m", {"--tensor-parallel-size": "8"}),
        ({"command": ["sh", "-c"], "args": ["vllm serve $MODEL -tp $(TP) --port ${PORT}"],
          "env": [{"name": "MODEL", "value": "/m/x"}, {"name": "TP", "value": "8"}, {"name": "PORT", "valueFrom": {"fieldRef": {}}}]},
         "/m/x", {"--tensor-parallel-size": "8", "--port": "${PORT}"}),
        ({"command": ["sh", "-c", "vllm serve m --served-model-name 'a b' --enable-prefix-caching --max-model-len 4096  # why"]}, "m", {"--served-model-name": "a b", "--max-model-len": "4096"}),
    ],
)  # fmt: skip
def test_the_engine_of_a_container(container: dict[str, Any], model: str, options: dict[str, str]) -> None:
    (engine,) = engines_of(container)
    assert engine.model == model
    assert options.items() <= engine.options.items()


@pytest.mark.parametrize(
    "container",
    [
        {},
        {"command": ["sleep", "9"]},
        {"command": ["sh", "-c", "echo 'open"]},
        {"command": "text"},
        {"args": [1, None]},
        {"command": ["sh", "-c"]},
    ],
)
def test_no_engine(container: dict[str, Any]) -> None:
    assert engines_of(container) == []
    assert ray_start(container) is None


def test_ray() -> None:
    assert ray_start({"command": ["sh", "-c", "ulimit -l unlimited; ray start --head --port=6380 --block"]}) == {
        "--head": "",
        "--port": "6380",
        "--block": "",
    }
    assert ray_start({"command": ["sh", "-c", "bash /x/multi-node-serving.sh worker --ray_address=$(A)"]}) == {
        "--address": "${A}:6379"
    }


def test_a_number_that_cannot_be_told_is_not_1() -> None:
    (engine,) = engines_of({"command": ["vllm", "serve", "m", "-tp", "$(TP)"]})
    assert engine.size("--tensor-parallel-size") is None
    assert engine.size("--pipeline-parallel-size") == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16Gi", 2**34),
        ("500m", 0.5),
        ("1e3", 1000),
        (8, 8),
        ("8", 8),
        ("x", None),
        (None, None),
        ("1.2.3", None),
        ("5Zi", None),
    ],
)
def test_quantities(text: object, value: float | None) -> None:
    assert number(text) == value


def test_resources() -> None:
    assert gpus({"nvidia.com/gpu": "8", "cpu": 4, "nvidia.com/mig-1g.10gb": 2}) == 10
    assert rdma_names({"rdma/hca": 1, "nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 4, "cpu": 1, "nvidia.com/mlnxnics": 1, "example.com/ib0": 1, "memory": "1Gi"}) == [
        "rdma/hca", "vpc.amazonaws.com/efa", "nvidia.com/mlnxnics", "example.com/ib0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        ("acme/Big-405B", 810),
        ("/m/x-70b-fp8", 70),
        ("x-7B-AWQ", 3.5),
        ("Mix-8x7B", 112),
        ("Sparse-235B-A22B", 470),
        ("model-v2", None),
        ("/models/bert", None),
    ],
)
def test_sizes_by_name(name: str, gigabytes: float | None) -> None:
    assert guess(name) == (None if gigabytes is None else gigabytes * 1e9)
