"""What a command line says of the engine that it starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ncdiag.bringup.command import Engine, read
from ncdiag.bringup.preflight import interpreter


def of(line: str, **environment: str) -> Engine:
    return read(line.split(), environment)


@pytest.mark.parametrize(
    ("line", "model", "url"),
    [
        ("vllm serve /models/a", "/models/a", "http://127.0.0.1:8000"),
        ("vllm serve /models/a --port 9000 --host 0.0.0.0", "/models/a", "http://127.0.0.1:9000"),
        ("vllm serve --model=/models/a --host 192.0.2.7 --port=9000", "/models/a", "http://192.0.2.7:9000"),
        ("/opt/venv/bin/vllm serve /models/a --host ::1 --root-path /v", "/models/a", "http://[::1]:8000/v"),
        ("python -m vllm.entrypoints.openai.api_server --model m --ssl-certfile c", "m", "https://127.0.0.1:8000"),
        ("env A=1 vllm serve m", "m", "http://127.0.0.1:8000"),
    ],
)
def test_where_it_will_answer(line: str, model: str, url: str) -> None:
    engine = of(line)
    assert (engine.serves, engine.model, engine.url) == (True, model, url)


def test_a_script_is_no_server_that_can_be_asked() -> None:
    assert not of("bash start.sh").serves
    assert not of("torchrun --nproc-per-node 2 train.py").serves


def test_text_of_a_shell_is_looked_into() -> None:
    engine = read(["bash", "-lc", "exec vllm serve /models/a -tp 4 --port 9001"], {})
    assert (engine.serves, engine.model, engine.tp, engine.port) == (True, "/models/a", 4, 9001)


def test_several_nodes_meet_where_the_flags_say_or_at_vllms_default() -> None:
    engine = of("vllm serve m -tp 16 --nnodes 2 --node-rank 0 --master-addr 192.0.2.7")
    assert (engine.nodes, engine.meeting) == (2, ("192.0.2.7", "29501"))
    assert engine.plan.ports == (8000, 29501)


def test_a_headless_node_listens_nowhere() -> None:
    engine = of("vllm serve m --headless --nnodes 2 --node-rank 1 --master-addr 192.0.2.7 --master-port 29600")
    assert engine.headless and engine.plan.ports == ()


def test_the_environment_says_where_a_script_meets() -> None:
    assert of("python train.py", MASTER_ADDR="192.0.2.7", MASTER_PORT="29500").meeting == ("192.0.2.7", "29500")


def test_key_and_executor() -> None:
    engine = of("vllm serve m --distributed-executor-backend ray", VLLM_API_KEY="k")
    assert (engine.ray, engine.api_key) == (True, "k")


def test_the_interpreter_of_the_engine_is_the_one_of_its_program(tmp_path: Path) -> None:
    program = tmp_path / "vllm"
    program.write_text("#!/opt/engine/bin/python3\n")
    program.chmod(0o755)
    assert interpreter(["env", "A=b", str(program), "serve", "m"]) == "/opt/engine/bin/python3"
    assert interpreter([os.path.realpath(sys.executable), "-m", "vllm"]) == os.path.realpath(sys.executable)
    wrapper = tmp_path / "python3"
    wrapper.write_text("#!/bin/sh\nexec python3.11\n")
    wrapper.chmod(0o755)
    assert interpreter([str(wrapper), "-m", "vllm"]) is None
    assert interpreter(["sh", "start.sh"]) is None
