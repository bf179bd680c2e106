"""`ncdiag playbook` as a program: no terminal, exit codes, hostile files."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ncdiag.exits import Exit
from ncdiag.playbook.loader import names
from ncdiag.playbook.record import Record, Taken

ROOT = Path(__file__).parents[2]


def ncdiag(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ncdiag", *arguments],
        check=False,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        env={**{name: value for name, value in os.environ.items() if name != "COLUMNS"}, **(env or {})},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_list_show_and_lint() -> None:
    listed = ncdiag("playbook", "list")
    assert listed.returncode == 0
    assert "socket-ifname-wrong" in listed.stdout
    shown = ncdiag("playbook", "show", "shm-too-small")
    assert "It looks like:" in shown.stdout
    assert "undo:" in shown.stdout
    assert ncdiag("playbook", "lint", "shm-too-small").returncode == 0


@pytest.mark.parametrize("columns", [60, 80, 133])
def test_the_list_keeps_to_the_width_of_the_terminal(columns: int) -> None:
    wide = ncdiag("playbook", "list").stdout
    assert len(wide.splitlines()) == len(names()), "a pipe gets one line each"
    narrow = ncdiag("playbook", "list", env={"COLUMNS": str(columns)}).stdout
    assert max(map(len, narrow.splitlines())) <= columns
    assert narrow.split() == wide.split(), "nothing is lost"


@pytest.mark.parametrize("columns", [60, 80])
def test_the_record_keeps_to_the_width_of_the_terminal(columns: int) -> None:
    """Headings and what commands answered stay whole, and in a pipe everything does."""
    wide = ncdiag("playbook", "run", "clock-skew").stdout
    narrow = ncdiag("playbook", "run", "clock-skew", env={"COLUMNS": str(columns)}).stdout
    outside = [part for number, part in enumerate(narrow.split("\n```")) if number % 2 == 0]
    lines = [line for part in outside for line in part.splitlines() if not line.startswith("#")]
    assert max(map(len, lines)) <= columns
    assert max(map(len, wide.splitlines())) > columns, "nothing was broken here"
    assert "## Remedies" in narrow and "- **shown** clock-skew/step-clock, risk medium: If it runs" in wide


def test_the_help_cuts_no_sentence() -> None:
    text = ncdiag("playbook", "--help", env={"COLUMNS": "200"}).stdout.partition("Commands:")[2]
    assert "..." not in text and "…" not in text
    assert "read-only commands" in " ".join(text.split())


def test_a_walk_without_a_terminal_writes_a_record(tmp_path: Path) -> None:
    done = ncdiag("playbook", "run", "disk-full", "--format", "json", "-o", str(tmp_path / "r.json"))
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["playbook"] == "disk-full"
    assert record["exit"] == done.returncode
    assert (tmp_path / "r.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("result", "name"),
    [
        (
            {
                "schema": 1,
                "findings": [{"status": "warn", "cause": "clock-skew"}, {"status": "fail", "cause": "disk-full"}],
            },
            "disk-full",
        ),
        (
            {
                "schema": 1,
                "causes": [{"cause": "disk-full", "confidence": "sure"}, {"cause": "rank-died", "confidence": "sure"}],
            },
            "disk-full",
        ),
        (
            {
                "schema": 1,
                "causes": [{"cause": "../../x", "confidence": "sure"}, {"cause": "disk-full", "confidence": "likely"}],
            },
            "disk-full",
        ),
        ({"schema": 1, "causes": [{"cause": "healthy", "confidence": "sure"}]}, "healthy"),
        ({"schema": 1, "findings": []}, "triage"),
    ],
)
def test_from_takes_the_first_cause(tmp_path: Path, result: dict[str, object], name: str) -> None:
    file = tmp_path / "f.json"
    file.write_text(json.dumps(result))
    done = ncdiag("playbook", "run", "--from", str(file), "--format", "json", "--limit", "20")
    assert json.loads(done.stdout)["playbook"] == name


def _findings(folder: Path, *found: tuple[str, str | None]) -> str:
    file = folder / "found.json"
    entries = [{"status": "fail", "cause": cause, "where": {"node": node} if node else {}} for cause, node in found]
    file.write_text(json.dumps({"schema": 1, "findings": entries}))
    return str(file)


def test_from_says_what_else_there_is(tmp_path: Path) -> None:
    here = socket.gethostname()
    file = _findings(
        tmp_path,
        ("disk-full", here),
        ("hostname-resolves-to-loopback", here),
        ("clock-skew", "node-7"),
        ("clock-skew", "node-8"),
        ("disk-full", "node-7"),
        ("no-such-cause", here),
        ("hostname-resolves-to-loopback", here),
    )
    done = ncdiag("playbook", "run", "--from", file)
    commands = [
        "ncdiag playbook run hostname-resolves-to-loopback",
        "ncdiag playbook run clock-skew --nodes ssh:node-7,node-8",
        "ncdiag playbook run disk-full --nodes ssh:node-7",
    ]
    assert "\n  ".join(["3 more, not walked:", *commands]) + "\n" in done.stderr
    assert [line for line in done.stdout.splitlines() if "not walked yet" in line] == [
        f"- not walked yet: `{command}`" for command in commands
    ]
    data = json.loads(ncdiag("-q", "playbook", "run", "--from", file, "--nodes", "local", "--format", "json").stdout)
    assert data["others"] == [f"{command.partition(' --')[0]} --nodes local" for command in commands[:2]]
    assert data["exit"] == (1 if data["result"] in ("to-do", "to-prove", "failed") else 3)


@pytest.mark.parametrize(
    ("outcome", "alone", "with_others"),
    [
        ("ok", Exit.OK, Exit.INCOMPLETE),
        ("fail", Exit.FINDING, Exit.FINDING),
        ("unknown", Exit.INCOMPLETE, Exit.INCOMPLETE),
    ],
)
def test_what_was_not_walked_is_not_in_order(outcome: str, alone: Exit, with_others: Exit) -> None:
    record = Record("shm-too-small", "t", "local", False, "now", [Taken("shm-too-small", "a", "probe", "t", outcome)])
    assert (record.exit, record.as_dict()["exit"]) == (alone, alone)
    result = record.result
    record.others = ["ncdiag playbook run disk-full"]
    assert (record.exit, record.as_dict()["exit"], record.result) == (with_others, with_others, result)


def test_one_cause_alone_has_no_others(tmp_path: Path) -> None:
    done = ncdiag("playbook", "run", "--from", _findings(tmp_path, ("disk-full", None)), "--format", "json")
    assert json.loads(done.stdout)["others"] == []
    assert "more" not in done.stderr


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 9, "causes": []}', "[" * 100000, "\xff\xfe"])
def test_from_refuses_what_is_no_result(tmp_path: Path, text: str) -> None:
    file = tmp_path / "f.json"
    file.write_text(text, encoding="latin-1")
    done = ncdiag("playbook", "run", "--from", str(file))
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr


HOSTILE = {
    "a-shell": "run: [sh, -c, 'touch {mark}']",
    "a-writer": "run: [dd, 'of={mark}']",
    "a-path-outside": "run: [cat, /etc/shadow]",
    "a-way-around": "run: [cat, /proc/self/root/etc/shadow]",
    "a-chain": "run: [df, -h, ';', touch, '{mark}']",
    "a-link-outside": "ask: q\n    then: 'playbook:../../etc/passwd'",
    "a-loop": "ask: q\n    then: step:s",
    "a-cause-of-no-probe": "ask: q\n    then: cause",
    "an-unknown-step": "ask: q\n    then: step:nowhere",
    "a-verify": "remedy: r\n    risk: low\n    undo: u\n    verify: {{run: [sh, -c, 'touch {mark}'], expect: {{exit: 0}}}}",
    "an-object": "ask: !!python/object/apply:os.system ['touch {mark}']",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_playbook_is_refused_with_its_line_and_nothing_runs(tmp_path: Path, kind: str) -> None:
    mark = tmp_path / "ran"
    books = tmp_path / "books"
    books.mkdir()
    step = HOSTILE[kind].format(mark=mark)
    book = f"title: t\nlooks_like: [a]\nknown_by: [b]\nsteps:\n  - id: first\n    run: [uname, -s]\n  - id: s\n    {step}\n"
    (books / "evil.yaml").write_text(book)
    done = ncdiag("playbook", "run", "evil", "--playbooks", str(books), "--apply", "--yes", "--max-risk", "high")
    assert done.returncode == 2, done.stdout
    assert "evil.yaml:" in done.stderr
    assert "Linux" not in done.stdout, "not even its harmless step runs"
    assert not mark.exists()


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "nosuch", "."])
def test_a_name_outside(name: str) -> None:
    done = ncdiag("playbook", "run", name)
    assert done.returncode == 2
    assert "playbook list" in done.stderr


@pytest.mark.parametrize(
    ("keys", "applied"), [("y\n", True), ("n\n", False), ("\n", False)], ids=["yes", "no", "enter"]
)
def test_a_person_at_a_terminal_confirms_after_seeing_undo_and_change(tmp_path: Path, keys: str, applied: bool) -> None:
    env = tmp_path / "job.env"
    env.write_text("NCCL_TIMEOUT=5\n")
    ours, theirs = os.openpty()
    command = [
        sys.executable,
        "-m",
        "ncdiag",
        "playbook",
        "run",
        "env-unknown-or-invalid",
        "--env-file",
        str(env),
        "--apply",
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, text=True)
    os.close(theirs)
    seen = ""
    try:
        while "Do it?" not in seen:
            seen += os.read(ours, 4096).decode()
        assert seen.index("undo:") < seen.index("change:") < seen.index("-NCCL_TIMEOUT=5") < seen.index("Do it?")
        os.write(ours, keys.encode())
        out = process.communicate(timeout=60)[0]
    finally:
        process.kill()
        os.close(ours)
    assert ("**applied**" in out) is applied
    assert env.read_text() == ("" if applied else "NCCL_TIMEOUT=5\n")


def test_remedies_are_shown_with_what_was_given() -> None:
    pid = str(os.getpid())
    given = ("--answer", "why=paused", "--value", "NAME=vllm_1", "--value", "NCCL_X=1")
    assert f"kill -CONT {pid}." in ncdiag("playbook", "run", "rank-stopped", "--pid", pid).stdout
    assert "docker unpause vllm_1, scontrol resume JOB" in ncdiag("playbook", "run", "rank-stopped", *given).stdout
