"""What is shown on the terminal, and how often."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest

from ncdiag.hang.verdict import Fold, Verdict
from ncdiag.model import Cause, Evidence, fail, skip, unknown, warn
from ncdiag.report.absent import absent
from ncdiag.report.causes import causes_as_text
from ncdiag.report.console import findings_as_text
from ncdiag.report.folding import unnamed
from ncdiag.report.hang import verdict_as_text
from ncdiag.report.plainly import brief
from ncdiag.report.progress import Doing
from ncdiag.report.wrapped import wrapped
from tests.probes.machines import Machine, judged


def test_one_remedy_is_shown_once() -> None:
    findings = [
        warn(f"{name} does not fit", "a", source="metadata", cause="version-mismatch", remedy="install all again", package=name)
        for name in ("torch", "ray", "numpy", "triton", "xformers", "vllm", "tokenizers", "zmq")
    ]  # fmt: skip
    shown = findings_as_text(["a"], findings, show_all=False, color=None, more="--all")
    assert shown.count("install all again") == 1 and shown.count("cause version-mismatch") == 1
    assert "torch does not fit\n" in shown and "2 more (--all shows them)" in shown
    assert findings_as_text(["a"], findings, show_all=True, color=None).count("does not fit\n") == 8


def test_other_nodes_and_other_remedies_stay_apart() -> None:
    findings = [
        fail("eth0 is down", "a", source="s", cause="c", remedy="ip link set eth0 up"),
        fail("eth1 is down", "b", source="s", cause="c", remedy="ip link set eth0 up"),
        fail("eth2 is down", "b", source="s", cause="c", remedy="ip link set eth2 up"),
    ]
    shown = findings_as_text(["a", "b"], findings, show_all=False, color=None)
    assert shown.count("→") == 3


def test_nodes_with_short_names_are_folded_too() -> None:
    findings = [
        replace(
            warn("a clock that drifts on a node", node, source="s", cause="clock-skew", remedy="mend it"), probe="clock"
        )
        for node in ("a", "b", "n1")
    ]
    shown = findings_as_text(["a", "b", "n1"], findings, show_all=False, color=None)
    assert shown.count("drifts") == 1 and "all 3 nodes" in shown
    assert unnamed("n1 reaches n12, n1.x and n1: no", "n1") == "\0 reaches n12, \0.x and \0: no"


def test_what_works_has_no_consequences() -> None:
    lines = [Evidence("a.log", "WARNING something", 3)]
    text = {
        slug: causes_as_text([Cause(slug, "likely", "so it is", {}, [], list(lines))], color=None)
        for slug in ("healthy", "slow-not-hung", "unresolved", "rank-died")
    }
    assert "not the cause, follows from it:" in text.pop("rank-died")
    assert "noise, since it works:" in text["healthy"]
    assert not any("not the cause" in shown for shown in text.values())


def test_a_node_that_gave_nothing_is_not_forty_findings() -> None:
    findings = [replace(unknown("nothing to judge: no node has facts for it"), probe=f"probe-{n}") for n in range(40)]
    findings.append(replace(unknown("a gave nothing: timed out", "a"), probe="node"))
    shown = findings_as_text(["a"], findings, show_all=False, color=None)
    assert shown.count("nothing to judge") == 1 and "unknown 40 probes" in shown and "41 unknown" in shown


def test_how_something_becomes_readable_stands_below_it() -> None:
    reasons = (
        ("no nft", "run it as root"),
        ("no list", ""),
        ("no ports", "look yourself"),
        ("no rules", "run it as root"),
    )
    findings = [
        replace(unknown(text, "a", remedy=remedy or None), probe=f"p{number}")
        for number, (text, remedy) in enumerate(reasons)
    ]
    shown = findings_as_text(["a"], findings, show_all=False, color=None).splitlines()[:6]
    assert [" ".join(line.split()) for line in shown] == [
        "unknown p1 no list",
        "unknown p0 no nft",
        "unknown p3 no rules",
        "→ run it as root",
        "unknown p2 no ports",
        "→ look yourself",
    ]


def test_causes_that_fit_the_same_lines_say_them_once() -> None:
    line = Evidence("a.log", "Watchdog caught collective operation timeout", 3)
    other = Evidence("b.log", "another line", 4)
    causes = [
        Cause("unresolved", "possible", "a collective did not end", {}, [line]),
        Cause("rank-died", "possible", "fits: a collective did not end", {}, [line], remedy="find it"),
        Cause("collective-desync", "possible", "fits: a collective did not end", {}, [line, other], remedy="compare"),
    ]
    shown = causes_as_text(causes, color=None)
    assert shown.count("a collective did not end") == shown.count("Watchdog") == 1
    assert shown.count("fits the same lines as unresolved\n") == 2 and "another line" in shown
    assert shown.count("→") == 2 and causes_as_text(causes, show_all=True, color=None).count("Watchdog") == 3


def test_what_is_left_out_of_a_stack_names_the_option_that_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    frames = [f"step_{number} (/srv/a/train.py:{number})" for number in range(9)]
    verdict = Verdict(
        "hang",
        "it hangs",
        folds=[Fold(["rank 0"], frames, True)],
        next=["the logs of the other nodes from their first line on"],
    )
    shown = verdict_as_text(verdict, [], color=None)
    assert "… 3 more (-v shows all)" in shown
    assert "  - the logs of the other nodes from their first line on\n" in shown
    assert "more" not in verdict_as_text(verdict, [], color=None, verbose=True)


def test_what_the_nodes_have_none_of_is_said_first() -> None:
    findings = [
        replace(skip(f"no {what} on this node", node), probe=probe)
        for what, probe in (("NVIDIA GPU", "gpu-health"), ("RDMA device", "verbs-access"))
        for node in ("a", "b")
    ]
    findings[1] = replace(fail("b: GPU 3 is lost", "b"), probe="gpu-health")
    first = findings_as_text(["a", "b"], findings, show_all=False, color=None, more="--all").splitlines()
    assert " ".join("\n".join(first[:2]).split()) == (
        "note no GPU on a; no RDMA device on a,b: what needs one was not checked (--all shows what was skipped)"
    )
    assert first[-1] == "2 nodes: 1 fail, 0 warn, 0 unknown, 0 ok, 3 skip (--all shows each)"
    alone = findings_as_text(["a"], [findings[0], findings[2]], show_all=True, color=None, more="--all")
    assert alone.startswith("note    no GPU and no RDMA device on a: what needs one was not checked\n")
    assert "note" not in findings_as_text(["b"], findings[1:2], show_all=False, color=None)


def test_a_bare_machine_says_that_it_has_no_card_and_a_full_one_does_not() -> None:
    bare = judged("verbs-access", Machine()) + judged("gpu-health", Machine())
    assert absent(["node1"], bare) == "no GPU and no RDMA device on node1"
    full = Machine().card("mlx5_0", "0000:10:00.0")
    assert absent(["node1"], judged("verbs-access", full)) == ""


def test_lines_are_broken_for_a_terminal_and_stay_whole_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [Evidence("/srv/logs/" + "a" * 60 + ".log", "NCCL WARN Error: failed to extend /dev/shm " * 3, 3)]
    cause = Cause("shm-too-small", "likely", "/dev/shm is full", {}, lines)
    monkeypatch.delenv("COLUMNS", raising=False)
    assert max(map(len, causes_as_text([cause], color=None).splitlines())) > 150
    monkeypatch.setenv("COLUMNS", "80")
    shown = causes_as_text([cause], color=None).splitlines()
    assert max(map(len, shown)) <= 80 and "      NCCL WARN" in "\n".join(shown)
    assert wrapped("a.yaml:3: fail: " + "word " * 20 + "/" + "x" * 90, "  ").splitlines()[1:] == [
        "  " + "word " * 6 + "word",
        "  /" + "x" * 90,
    ]


def test_an_indent_stays_before_a_word_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert wrapped("    /srv/" + "x" * 70 + "  and more words", "      ").splitlines() == [
        "    /srv/" + "x" * 70,
        "      and more words",
    ]


def test_items_of_a_list_hang_behind_their_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    shown = causes_as_text(
        [], next_=["the log of every rank with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET"], color=None
    )
    assert shown.splitlines()[1:] == [
        "  · the log of every rank with NCCL_DEBUG=INFO",
        "    NCCL_DEBUG_SUBSYS=INIT,NET",
    ]


@pytest.mark.parametrize(
    ("took_s", "words"),
    [(0.00000131, "0.00131 ms"), (0.512, "512 ms"), (1.0, "1 s"), (131.2, "131 s"), (13120.0, "13120 s")],
)
def test_short_and_long_times(took_s: float, words: str) -> None:
    assert brief(took_s) == words


def test_what_is_being_done_is_one_line_on_a_terminal_and_notes_stay(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    ours, theirs = os.openpty()
    terminal = open(theirs, "w")  # noqa: SIM115
    for stderr in (terminal, sys.stderr):
        monkeypatch.setattr(sys, "stderr", stderr)
        with Doing(False) as doing:
            for text in ("all_reduce of 8 bytes", "note: little memory is free", "all_reduce of 16 bytes"):
                doing.say(text)
        with Doing(True) as doing:
            doing.say("nothing")
    seen = os.read(ours, 4096).decode()
    terminal.close()
    os.close(ours)
    clear = "\r\x1b[K"
    assert (
        seen
        == f"{clear}ncdiag: all_reduce {clear}ncdiag: note: little memory is free\r\n{clear}ncdiag: all_reduce {clear}"
    )
    assert (
        capfd.readouterr().err
        == "ncdiag: all_reduce of 8 bytes\nncdiag: note: little memory is free\nncdiag: all_reduce of 16 bytes\n"
    )
