"""Every known variable can be explained, in true words."""

from __future__ import annotations

import json

from ncdiag.nccl import environment, meanings
from ncdiag.nccl.explanation import explain, known, nearest
from ncdiag.report.variable import explained
from tests.env.clusters import env


def test_every_known_name_is_explained() -> None:
    for name in known():
        found = explain(name)
        assert found is not None and name in explained(found), name


def test_the_table_of_meanings_names_what_exists() -> None:
    lines = meanings.NCCL.strip().splitlines()
    assert {"NCCL_" + line.split(" | ")[0] for line in lines} <= set(environment.table())
    assert all(line.count(" | ") == 2 for line in lines + meanings.OTHERS.strip().splitlines())


def test_what_it_says() -> None:
    done = env("--explain", "NCCL_IB_GID_INDEX")
    assert done.returncode == 0
    assert (
        "-1 (0 before 2.21)" in done.stdout
        and "2.18 or older to the newest" in done.stdout
        and "read by:  NCCL" in done.stdout
    )
    told = json.loads(env("--explain", "VLLM_HOST_IP", "--as", "json").stdout)
    assert told["explain"]["read_by"] == "vLLM"


def test_names_that_do_nothing() -> None:
    gone = explain("NCCL_IB_CUDA_SUPPORT")
    assert gone is not None and gone.read_by == "no current release"
    old = explain("NCCL_ASYNC_ERROR_HANDLING")
    assert old is not None and "TORCH_NCCL_ASYNC_ERROR_HANDLING" in old.notes[0]
    assert explain("NCCL_NO_SUCH") is None and nearest("NCCL_IB_GIDINDEX") == "NCCL_IB_GID_INDEX"
