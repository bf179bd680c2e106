"""Environments as people write them down."""

from __future__ import annotations

import time

import pytest

from ncdiag.nccl.advice import ALL_NODES
from ncdiag.nccl.written import NotUnderstood, for_node, not_understood, read

SHELL = """\
#!/bin/bash
set -e
export NCCL_DEBUG=WARN   # for every day
NCCL_SOCKET_IFNAME==eth0
export A=1 B="two words" C='$literal'
export VLLM_HOST_IP=$(hostname -I | cut -d' ' -f1)
  export NCCL_IB_TC="106";
export NCCL_IB_DISABLE=1
unset NCCL_IB_DISABLE
vllm serve /model --tensor-parallel-size=8
OMP_NUM_THREADS=1 vllm serve /model NOT=this
"""


def test_shell() -> None:
    assert read(SHELL)[ALL_NODES] == {
        "NCCL_DEBUG": "WARN", "NCCL_SOCKET_IFNAME": "=eth0", "A": "1", "B": "two words", "C": "$literal", "VLLM_HOST_IP": None,
        "NCCL_IB_TC": "106", "OMP_NUM_THREADS": "1",
    }  # fmt: skip


def test_shell_by_node() -> None:
    text = (
        "export A=1\ncase $(hostname) in\ngpu01)\n  export B=1\n  ;;\n'gpu 02')\n  export B=2\n  ;;\nesac\nexport C=3\n"
    )
    found = read(text)
    assert for_node(found, "gpu01") == {"A": "1", "B": "1", "C": "3"}
    assert for_node(found, "gpu 02") == {"A": "1", "B": "2", "C": "3"}
    assert for_node(found, "gpu03") == {"A": "1", "C": "3"}


@pytest.mark.parametrize("text", [
    "docker run --rm --gpus all --env A=1 -e B='x y' \\\n  --env=C=3 -eD=4 -v /a:/b --name it image vllm serve",
    "sudo docker run -e A=1 -e \"B=x y\" -e C=3 -e D=4 image",
    "srun --export=ALL env A=1 'B=x y' C=3 D=4 vllm serve",
    "FROM base\nENV A=1\nENV B='x y' C=3 D=4\nRUN x",
    "[Service]\nEnvironment=A=1\nEnvironment='B=x y'\nEnvironment=C=3\nEnvironment=D=4\nExecStart=/bin/vllm",
])  # fmt: skip
def test_command_lines(text: str) -> None:
    assert read(text)[ALL_NODES] == {"A": "1", "B": "x y", "C": "3", "D": "4"}


KUBERNETES = """\
apiVersion: apps/v1
kind: StatefulSet
spec:
  template:
    spec:
      containers:
      - name: vllm
        env:
        - {name: A, value: "1"}
        - name: VLLM_HOST_IP
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        - name: D
          value: $(A)-x
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {B: "x y"}
"""


@pytest.mark.parametrize("text, name, expected", [
    (KUBERNETES, "pod.yaml", {"A": "1", "VLLM_HOST_IP": None, "D": None, "B": "x y"}),
    ("services:\n  engine:\n    environment:\n    - A=1\n    - B=x y\n    - HOSTS\n", "compose.yml", {"A": "1", "B": "x y", "HOSTS": None}),
    ("services:\n  engine:\n    environment: {A: 1, B: true}\n", "compose.yml", {"A": "1", "B": "true"}),
    ('{"working_dir": ".", "env_vars": {"A": "1", "B": ""}}', "runtime_env.json", {"A": "1", "B": ""}),
    ('{"env_vars": {"A": "1"}}', "-", {"A": "1"}),
])  # fmt: skip
def test_structured(text: str, name: str, expected: dict[str, str | None]) -> None:
    assert read(text, name)[ALL_NODES] == expected


@pytest.mark.parametrize(
    "text, name", [("", "x"), ("nothing here", "x"), ("a: [", "x.yaml"), ("{}", "x.json"), ("- 1\n- 2\n", "x.yaml")]
)
def test_nothing_found_is_said(text: str, name: str) -> None:
    with pytest.raises(NotUnderstood):
        read(text, name)


def test_yaml_that_refers_to_itself() -> None:
    text = "a: &a\n  env: {A: 1}\n  again: *a\n  b: [&x [1], *x, *a]\n"
    assert read(text, "x.yaml")[ALL_NODES] == {"A": "1"}
    doubling = (
        "l0: &l0 [1]\n" + "".join(f"l{n}: &l{n} [*l{n - 1}, *l{n - 1}]\n" for n in range(1, 40)) + "env: {A: 1}\n"
    )
    assert read(doubling, "x.yaml")[ALL_NODES] == {"A": "1"}


@pytest.mark.parametrize("text, lines", [
    (SHELL, []), ("A=1\n" + "a" * 100_000 + "\n", [2]), ("A=1\n%%% ~~\n\xa7\n" + "b" * 300, [2, 3, 4]),
    ("A=1\nNCCL_DEBUG = INFO\nNCCL_DEBUG: INFO\nexport NCCL_DEBUG INFO\nsetenv NCCL_DEBUG INFO\nset -gx NCCL_DEBUG INFO\n", [2, 3, 4, 5, 6]),
    ("FROM base\nENV NCCL_DEBUG INFO\nENV A=1\nRUN x", [2]), ("A_B=1 \\\nC_D=2\nNCCL_IB_HCA+=,x", [3]),
    ("#!/bin/sh -e\nif [ -f /etc/x ]; then\n  . /etc/x\nfi\nA_B=1\nC_D=2\nexport A_B C_D\nexport PATH\n[[ $A_B ]] && ./run --x\n(cd /; ls) ||\n  { exit 1; }\n"
     "case $(hostname) in\n*)\n  export B=1\n  ;;\nesac\nf() {\n\"$HOME/bin/x\" y\n}\n! grep -q x y\n", []),
    ("[Service]\nEnvironment=A=1\nExecStart=@/bin/vllm\n", []), ('{"env_vars": {"A": "1"}}', []),
])  # fmt: skip
def test_lines_that_are_not_understood(text: str, lines: list[int]) -> None:
    assert [number for number, _ in not_understood(text)] == lines


@pytest.mark.parametrize("line", ["a" * 2_000_000, "A=" * 1_000_000, "A='" * 700_000, "A=1 " * 15_000, "a" * 65_000])
def test_long_lines_take_linear_time(line: str) -> None:
    start = time.process_time()
    read(f"A=1\n{line}\n")
    not_understood(f"A=1\n{line}\n")
    assert time.process_time() - start < 2
