"""`ncdiag report` as people run it: real files, real exit codes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from ncdiag import __version__, bundle
from ncdiag.cli import cli
from ncdiag.hang.content import DumpContent
from ncdiag.model import RankState
from tests.nccl_topology import machines as dumps
from tests.report import samples
from tests.report.parsed import Page

ROOT = Path(__file__).parent.parent.parent
TREE = ROOT / "tests" / "trees" / "pci-switches-numa-8rail.tar.gz"
OTHER = ROOT / "tests" / "trees" / "mtu-mismatch.tar.gz"


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def ncdiag(*arguments: object) -> Done:
    """In this process: start-up is tested elsewhere."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main([str(argument) for argument in arguments], standalone_mode=False)
        except click.ClickException as error:
            error.show()
            code = error.exit_code
    return Done(int(code or 0), out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what commands save: findings, a snapshot, a verdict's bundle, a start, a bandwidth run."""
    folder = tmp_path_factory.mktemp("saved")
    assert (
        ncdiag("preflight", "--nodes", f"file:{TREE}", "--format", "json", "-o", folder / "findings.json").returncode
        == 3
    )
    assert ncdiag("collect", "--nodes", f"file:{TREE}", "-o", folder / "snapshot.json").returncode == 3
    assert ncdiag("collect", "--nodes", f"file:{OTHER}", "-o", folder / "other.json").returncode == 3
    (folder / "bringup.json").write_text(json.dumps(samples.bringup()))
    (folder / "bandwidth.json").write_text(json.dumps(samples.bandwidth()))
    (folder / "timeline.json").write_text(json.dumps({"schema": 1, **samples.bringup()["timeline"]}))
    states = [
        RankState(pid=40 + rank, node="gpu01", role="worker", rank=rank, world_size=2, state="T" if rank else "S")
        for rank in range(2)
    ]
    bundle.save(str(folder / "dump.tar.gz"), DumpContent(states, meta={"node": "gpu01", "version": "0"}))
    return folder


@pytest.mark.parametrize("format_", ["text", "json", "junit", "prometheus"])
def test_saved_findings_say_the_same_as_when_they_were_found(saved: Path, format_: str) -> None:
    direct = ncdiag("preflight", "--nodes", f"file:{TREE}", "--format", format_)
    again = ncdiag("report", saved / "findings.json", "--format", format_)
    judged = ncdiag("report", saved / "snapshot.json", "--format", format_)
    assert direct.returncode == again.returncode == judged.returncode == 3, again.stderr
    if format_ != "json":
        assert again.stdout == direct.stdout == judged.stdout
    else:
        assert json.loads(again.stdout) == json.loads(direct.stdout)
        assert json.loads(judged.stdout)["findings"] == json.loads(direct.stdout)["findings"]


def test_snapshots_trees_and_findings_are_drawn(saved: Path) -> None:
    for source in (saved / "snapshot.json", saved / "findings.json", TREE):
        page = Page(ncdiag("report", source, "--format", "html").stdout)
        assert [node for node in page.all("svg") if node.attributes.get("class") == "tree"]


@pytest.mark.parametrize(
    "name", ["findings.json", "snapshot.json", "dump.tar.gz", "bringup.json", "bandwidth.json", "timeline.json"]
)
@pytest.mark.parametrize("format_", ["text", "json", "html", "junit", "prometheus"])
def test_everything_saved_in_every_format(saved: Path, name: str, format_: str, tmp_path: Path) -> None:
    done = ncdiag("-q", "report", saved / name, "--format", format_, "-o", tmp_path / "out")
    assert done.returncode in (0, 1, 3) and not done.stderr, done.stderr
    text = (tmp_path / "out").read_text("utf-8")
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600
    if format_ == "json":
        assert json.loads(text)["schema"] == 1
    elif format_ == "html":
        assert Page(text).all("h1")[0].text.strip()
    elif format_ == "junit":
        assert ElementTree.fromstring(text.encode()).tag == "testsuites"
    else:
        assert text.strip()


@pytest.mark.parametrize(
    ("event", "code", "said"),
    [
        ("ready", 0, "The engine is up after 2 min 51 s"),
        ("failed", 1, "did not come up after 2 min 51 s"),
        ("ended", 3, "nothing had come up"),
        (["x"], 0, "Nothing was judged"),
    ],
)
def test_a_timeline_says_how_the_start_ended(tmp_path: Path, event: object, code: int, said: str) -> None:
    timeline = samples.bringup()["timeline"]
    timeline["events"][-1]["event"] = event
    (tmp_path / "t.json").write_text(json.dumps({"schema": 1, **timeline}))
    done = ncdiag("report", tmp_path / "t.json")
    assert done.returncode == code and said in done.stdout


def test_topologies_saved_by_topo_are_drawn(tmp_path: Path) -> None:
    (tmp_path / "dump.xml").write_text(dumps.eight_rails())
    assert ncdiag("topo", tmp_path / "dump.xml", "--format", "json", "-o", tmp_path / "topo.json").returncode == 0
    page = Page(ncdiag("report", tmp_path / "topo.json", "--format", "html").stdout)
    assert "8 of 8 ways" in page.root.text and "8 GPUs and 8 NICs" in page.root.text


def test_a_bundle_concludes_as_diagnose_does(saved: Path) -> None:
    report = json.loads(ncdiag("report", saved / "dump.tar.gz", "--format", "json").stdout)
    diagnose = json.loads(ncdiag("diagnose", saved / "dump.tar.gz", "--format", "json").stdout)
    for key in ("verdict", "summary", "causes", "ranks", "exit"):
        assert report[key] == diagnose[key]


def test_several_results_are_one_report(saved: Path) -> None:
    done = ncdiag(
        "report", saved / "findings.json", saved / "bringup.json", saved / "bandwidth.json", "--format", "html"
    )
    page = Page(done.stdout)
    assert [node.text.split(",")[0] for node in page.all("h2") if "part-title" in node.attributes.get("class", "")] == [
        "1. preflight",
        "2. bringup",
        "3. bandwidth",
    ]
    assert done.returncode == 3, "the gravest of 3, 0 and 0"
    both = json.loads(ncdiag("report", saved / "findings.json", saved / "bringup.json", "--format", "json").stdout)
    assert [one["command"] for one in both["results"]] == ["preflight", "bringup"]


def test_snapshots_of_several_nodes_are_judged_together(saved: Path) -> None:
    done = json.loads(ncdiag("report", saved / "snapshot.json", saved / "other.json", "--format", "json").stdout)
    assert done["nodes"] == ["pci-switches-numa-8rail", "mtu-mismatch"] and done["command"] == "preflight"
    twice = ncdiag("report", saved / "snapshot.json", saved / "snapshot.json")
    assert twice.returncode == 2 and "compare them with --against" in twice.stderr


def test_against_an_older_result(saved: Path, tmp_path: Path) -> None:
    data = json.loads((saved / "findings.json").read_text())
    gone = next(finding for finding in data["findings"] if finding["status"] == "warn")
    old = {
        **data,
        "findings": [
            {**gone, "summary": "something else was wrong"},
            *(one for one in data["findings"] if one is not gone),
        ],
    }
    (tmp_path / "old.json").write_text(json.dumps(old))
    done = ncdiag("report", saved / "findings.json", "--against", tmp_path / "old.json", "--format", "json")
    comparison = json.loads(done.stdout)["comparison"]
    assert [one["summary"] for one in comparison["new"]] == [gone["summary"]]
    assert [one["summary"] for one in comparison["fixed"]] == ["something else was wrong"]
    assert (
        len(comparison["unchanged"]) == data["counts"]["warn"] + data["counts"]["unknown"] - 1
        and not comparison["not_judged"]
    )
    text = ncdiag("report", saved / "findings.json", "--against", tmp_path / "old.json").stdout
    assert "1 new" in text and "1 fixed" in text
    assert (
        "Compared with"
        in ncdiag("report", saved / "findings.json", "--against", tmp_path / "old.json", "--format", "html").stdout
    )


def test_from_standard_input(saved: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "ncdiag", "report", "-", "--format", "junit"]
    done = subprocess.run(
        argv,
        input=(saved / "findings.json").read_text(),
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 3 and done.stdout.startswith("<?xml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("no json at all", "ncdiag diagnose"),
        ("[1, 2]", 'no "command"'),
        ('{"schema": 9, "command": "preflight", "findings": []}', "schema 9; this ncdiag reads 1"),
        ('{"schema": 1, "command": "preflight"}', "neither findings nor causes"),
        ('{"schema": 1, "command": "preflight", "findings": [{"status": "fine"}]}', "findings[0] is damaged"),
        ('{"schema": 1, "command": "preflight", "findings": [7]}', "findings[0] is damaged"),
        (
            '{"schema": 1, "command": "diagnose", "causes": [{"cause": "x", "confidence": "certain", "summary": ""}]}',
            "causes[0] is damaged",
        ),
        ('{"schema": 1, "kind": "snapshot", "nodes": {"a": 3}}', "damaged snapshot"),
        pytest.param("[" * 100_000, "no JSON", id="deep"),
        ("", "no JSON"),
    ],
)
def test_what_is_no_result_is_one_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "bad.json").write_text(content)
    done = ncdiag("report", tmp_path / "bad.json", "--format", "html")
    assert (
        done.returncode == 2 and message in done.stderr and "bad.json" in done.stderr and "Traceback" not in done.stderr
    )
    assert ncdiag("report", tmp_path / "missing.json").returncode == 2


def test_results_say_when_and_where_they_were_found(tmp_path: Path) -> None:
    live = json.loads(ncdiag("preflight", "--only", "shm", "--format", "json").stdout)["run"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", live["at"]) and live["host"] == platform.node()
    assert live["version"] == __version__
    snapshot = {"schema": 1, "kind": "snapshot", "plan": {}, "nodes": {}}
    snapshot["nodes"] = {
        name: {"node": name, "meta": {"collected_at": at}} for name, at in (("a", 86400), ("b", 90000))
    }
    (tmp_path / "old.json").write_text(json.dumps(snapshot))
    old = json.loads(ncdiag("report", tmp_path / "old.json", "--format", "json").stdout)["run"]
    assert old["at"] == "1970-01-02T01:00:00Z", "the time of the facts, not of their judgement"
    tree = json.loads(ncdiag("preflight", "--nodes", f"file:{TREE}", "--format", "json").stdout)["run"]
    assert tree["at"] == "" and tree["host"]


def test_what_was_seen_has_its_unit_also_when_it_is_shown_again(tmp_path: Path) -> None:
    saved, page = tmp_path / "saved.json", tmp_path / "page.html"
    ncdiag("preflight", "--nodes", f"file:{TREE}", "--only", "limits", "--format", "json", "-o", saved)
    files = next(one for one in json.loads(saved.read_text())["findings"] if one["where"]["setting"] == "nofile")
    assert (files["observed"], files["unit"]) == (1024, "open files")
    ncdiag("report", saved, "--format", "html", "-o", page)
    assert "<dd>1024 open files</dd>" in page.read_text() and "<dd>4096 open files</dd>" in page.read_text()
    assert "seen: 1024 open files" in ncdiag("report", saved, "--format", "junit").stdout


CAPTURED = ROOT / "tests" / "logs" / "gpu" / "healthy-p2p"
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 256,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize("command", ["env", "log", "topo", "plan"])
def test_what_is_no_finding_says_when_and_where_it_was_read_too(tmp_path: Path, command: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    rest = {
        "env": ("--as", "json"),
        "log": (CAPTURED / "rank0.log.gz", "--format", "json"),
        "topo": (CAPTURED / "topology.xml", "--format", "json"),
        "plan": (tmp_path, "--format", "json"),
    }
    data = json.loads(ncdiag(command, *rest[command]).stdout)
    assert list(data)[:3] == ["schema", "command", "run"]
    assert data["run"]["at"] and data["run"]["host"] == platform.node() and data["run"]["version"] == __version__


def test_what_was_written_is_told_on_stderr(tmp_path: Path) -> None:
    snapshot, found, page = (tmp_path / name for name in ("a snapshot.json", "f.json", "f.html"))
    said = ncdiag("collect", "--only", "shm", "-o", snapshot)
    assert said.stdout == ""
    assert said.stderr == (
        f"saved {snapshot} ({snapshot.stat().st_size:,} bytes); "
        f"judge it, here or elsewhere, with: ncdiag preflight --nodes file:'{snapshot}'\n"
    )
    told = ncdiag("preflight", "--only", "shm", "--format", "json", "-o", found).stderr
    assert told.endswith(f" bytes); show it again with: ncdiag report {found}\n")
    assert ncdiag("report", found, "--format", "html", "-o", page).stderr.endswith("; open it in a browser\n")
    assert ncdiag("-q", "report", found, "-o", tmp_path / "t").stderr == ""
    assert ncdiag("report", found).stderr == ""
