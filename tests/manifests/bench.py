"""A plan without a model's files, and the manifests that are made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from ncdiag.cli import cli
from ncdiag.manifests.document import Document, parse
from ncdiag.manifests.lint import lint
from ncdiag.manifests.render import render
from ncdiag.manifests.skeleton import Wanted
from ncdiag.model import Finding
from ncdiag.sizing.gpus import parse_gpus
from ncdiag.sizing.plan import Request, make_plan

DENSE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126,
    "num_attention_heads": 128, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip
SMALL = {**DENSE, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}


def plan(folder: Path, config: dict[str, Any] = DENSE, gpus: str = "H100x8*2") -> dict[str, Any]:
    """As `ncdiag plan` makes it."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return make_plan(Request(folder, parse_gpus((gpus,)), 16384))


def spread_plan() -> dict[str, Any]:
    """Data-parallel attention over two nodes, as `sizing.commands` writes it."""
    line = "vllm serve m --tensor-parallel-size 2 --data-parallel-size 8 --enable-expert-parallel --max-model-len 4096"
    more = f"{line} --data-parallel-size-local 4 --data-parallel-address $HEAD_IP --data-parallel-rpc-port 29550"
    return {
        "schema": 1,
        "command": "plan",
        "model": {"weights_bytes": 700e9},
        "cluster": {"gpu": "H100", "gpus_per_node": 8, "nodes": 2},
        "recommended": {"tp": 2, "pp": 1, "dp": 8, "gpus": 16, "nodes": 2, "replicas": 1, "fits": True},
        "commands": [f"{more}  # on the first node", f"{more} --data-parallel-start-rank 4 --headless  # on node 2"],
    }


def made(what: dict[str, Any], **wanted: Any) -> str:
    return render(what, Wanted(**{"interface": "ens1f0", **wanted}))


def ncdiag(*arguments: str) -> tuple[int, str]:
    """Exit code and what was printed."""
    done = CliRunner().invoke(cli, arguments, standalone_mode=False)
    if isinstance(done.exception, click.ClickException):
        return done.exception.exit_code, f"Error: {done.exception.format_message()}"
    assert done.exception is None, done.exception
    return done.return_value, done.output


def documents(text: str, source: str = "m.yaml") -> list[Document]:
    return parse(text, source)


def found(text: str, weights_gib: float | None = None) -> list[Finding]:
    return lint(documents(text), weights_gib * 2**30 if weights_gib else None)


def bad(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.status.severity >= 2]
