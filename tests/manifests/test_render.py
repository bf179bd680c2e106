"""What is written passes its own lint and the schemas of Kubernetes, and its scripts run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ncdiag.manifests.planned import RenderError
from tests.manifests.bench import DENSE, SMALL, bad, found, made, ncdiag, plan, spread_plan

FORMS = [
    ("dense", "lws"),
    ("dense", "statefulset"),
    ("spread", "lws"),
    ("spread", "statefulset"),
    ("small", "deployment"),
    ("small", "auto"),
]


def _plan(name: str, folder: Path) -> dict[str, Any]:
    return spread_plan() if name == "spread" else plan(folder / "m", SMALL if name == "small" else DENSE)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_it_passes_its_own_lint_without_a_warning(name: str, form: str, tmp_path: Path) -> None:
    findings = found(made(_plan(name, tmp_path), form=form))
    assert [finding.summary for finding in bad(findings)] == []
    assert any(finding.probe == "k8s-parallel" and finding.status.value == "ok" for finding in findings)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_kubernetes_knows_every_field(name: str, form: str, tmp_path: Path) -> None:
    """By the JSON schemas that kubeconform uses, strictly. The pods of a LeaderWorkerSet are held against the schema of a Pod."""
    checker = pytest.importorskip("kubernetes_validate")
    for document in yaml.safe_load_all(made(_plan(name, tmp_path), form=form)):
        if document["kind"] != "LeaderWorkerSet":
            checker.validate(document, "1.34", strict=True)
            continue
        outer = document["spec"].pop("leaderWorkerTemplate")
        assert set(document["spec"]) <= {"replicas", "startupPolicy"}
        assert set(outer) == {"size", "restartPolicy", "leaderTemplate", "workerTemplate"}
        for role in ("leaderTemplate", "workerTemplate"):
            template = outer[role]
            checker.validate(
                {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {"name": "p", **template["metadata"]}},
                "1.34",
                strict=True,
            )


def _runs(argv: list[str], folder: Path, **environment: str) -> list[str]:
    """Runs a container's command with a `vllm` that prints its arguments."""
    program = folder / "bin" / "vllm"
    program.parent.mkdir(exist_ok=True)
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    filled = [word.replace("$(LWS_LEADER_ADDRESS)", environment.get("LWS_LEADER_ADDRESS", "")) for word in argv]
    path = f"{program.parent}:/usr/bin:/bin"
    return subprocess.run(
        filled, env={"PATH": path, **environment}, capture_output=True, text=True, check=True
    ).stdout.split("\n")


def _after(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def test_the_nodes_of_a_stateful_set_start_as_what_they_are(tmp_path: Path) -> None:
    for what, option, ranks in (
        (plan(tmp_path / "m"), "--node-rank", ("0", "1")),
        (spread_plan(), "--data-parallel-start-rank", (None, "4")),
    ):
        stateful = next(
            one for one in yaml.safe_load_all(made(what, form="statefulset")) if one["kind"] == "StatefulSet"
        )
        command = stateful["spec"]["template"]["spec"]["containers"][0]["command"]
        first, second = (_runs(command, tmp_path, NODE_RANK=rank) for rank in "01")
        assert "--headless" not in first
        assert "--headless" in second
        assert _after(second, option) == ranks[1]
        assert (option in first) == (ranks[0] is not None)
        assert (
            _after(first, "--master-addr" if option == "--node-rank" else "--data-parallel-address")
            == "vllm-0.vllm-nodes"
        )


def test_the_workers_of_a_leader_worker_set_join_their_leader(tmp_path: Path) -> None:
    for what, option, rank in (
        (plan(tmp_path / "m"), "--node-rank", "1"),
        (spread_plan(), "--data-parallel-start-rank", "4"),
    ):
        outer = next(one for one in yaml.safe_load_all(made(what)) if one["kind"] == "LeaderWorkerSet")["spec"][
            "leaderWorkerTemplate"
        ]
        environment = {"LWS_LEADER_ADDRESS": "vllm-0.vllm.ns", "LWS_WORKER_INDEX": "1"}
        leader, worker = (
            _runs(outer[role]["spec"]["containers"][0]["command"], tmp_path, **environment)
            for role in ("leaderTemplate", "workerTemplate")
        )
        assert "--headless" not in leader
        assert "--headless" in worker
        assert _after(worker, option) == rank
        assert "vllm-0.vllm.ns" in leader
        assert "vllm-0.vllm.ns" in worker


def test_a_large_model_gets_the_time_to_load(tmp_path: Path) -> None:
    what = plan(tmp_path / "m")
    what["model"]["weights_bytes"] = 3e12
    leader = next(yaml.safe_load_all(made(what)))["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"][
        "containers"
    ][0]
    probe = leader["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] > 240 + 3000


@pytest.mark.parametrize(
    ("wanted", "words"),
    [({"form": "deployment"}, "spans 2 node"), ({"interface": ""}, "--interface")],
)
def test_what_cannot_be_written_is_said(wanted: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(RenderError, match=words):
        made(plan(tmp_path / "m"), **wanted)


def test_nothing_that_fits_is_said(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="nothing fits"):
        made(plan(tmp_path / "m", gpus="T4x1"))


def test_the_command_takes_a_saved_plan_or_a_model(tmp_path: Path) -> None:
    what = plan(tmp_path / "m")
    saved = tmp_path / "plan.json"
    saved.write_text(json.dumps(what))
    out = tmp_path / "o.yaml"
    options = ["--interface", "ens1f0", "-o", str(out)]
    assert ncdiag("k8s", "render", str(saved), *options)[0] == 0
    first = out.read_text()
    assert (
        ncdiag("k8s", "render", str(tmp_path / "m"), "--gpus", "H100x8*2", "--max-model-len", "16384", *options)[0] == 0
    )
    assert out.read_text() == first
    assert ncdiag("k8s", "lint", "--fail-on", "warn", str(out)) == (0, "27 ok\n")
    for wrong in ([str(saved), "--gpus", "H100x8"], [str(tmp_path / "m"), "--node-label", "x"], [str(out)]):
        code, said = ncdiag("k8s", "render", *wrong, *options)
        assert (code, "Error: " in said) == (2, True)
    saved.write_text('{"command": "plan", "schema": 1}')
    code, said = ncdiag("k8s", "render", str(saved))
    assert (code, "damaged plan" in said) == (2, True)
