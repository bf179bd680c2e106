"""A playbook's probes and commands reach other nodes the way every probe does: inside the payload."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ncdiag.fleet import Request, remote
from ncdiag.model import NodeFacts
from ncdiag.playbook.targets import Target, answer_of, command_probe
from ncdiag.registry import load


def _as_a_remote_node(request: Request) -> NodeFacts:
    """What SSH would run on the node, run here: nothing but standard input goes in."""
    done = subprocess.run(
        ["sh", "-c", remote.command()],
        input=remote.pack(request),
        capture_output=True,
        timeout=60,
        check=False,
        cwd="/",
    )
    return remote.outcome("other", remote.Answer(done.returncode, done.stdout.decode(), done.stderr.decode()), 60)


def test_a_command_travels(tmp_path: Path) -> None:
    (tmp_path / "playbook_command.py").write_text(command_probe(["uname", "-s"], 10))
    probes = load([str(tmp_path)]).chosen(["playbook-command"])
    answer = answer_of(_as_a_remote_node(Request(list(probes.values()), [str(tmp_path)])))
    assert (answer.node, answer.rc, answer.text.strip()) == ("other", 0, "Linux")


def test_a_program_that_is_not_there_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "playbook_command.py").write_text(command_probe(["nosuchprogram"], 10))
    probes = load([str(tmp_path)]).chosen(["playbook-command"])
    answer = answer_of(_as_a_remote_node(Request(list(probes.values()), [str(tmp_path)])))
    assert answer.rc is None
    assert "not installed" in answer.text


def test_a_node_that_does_not_answer_is_not_run() -> None:
    answer = answer_of(NodeFacts("gone", unreachable="no answer within 10 s"))
    assert (answer.node, answer.rc, answer.text) == ("gone", None, "no answer within 10 s")


def test_a_command_that_is_not_allowed_never_reaches_a_node() -> None:
    for argv in (["sh", "-c", "id"], ["cat", "/etc/shadow"], ["ip", "link", "set", "eth0", "down"]):
        (answer,) = Target().run(argv, 5)
        assert answer.rc is None
        assert answer.text.startswith("refused: ")
