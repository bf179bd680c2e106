"""Walking a playbook: the decision tree, dry run, confirmation, unread is not healthy, the record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ncdiag.inwords import figure, in_words
from ncdiag.model import NodeFacts, Snapshot, warn
from ncdiag.playbook.actions import Inputs, Prepared
from ncdiag.playbook.evidence import judge, seen_in
from ncdiag.playbook.lint import proved
from ncdiag.playbook.loader import load, names
from ncdiag.playbook.record import Record, Seen, Taken, as_markdown, shorten
from ncdiag.playbook.runner import Nobody, Walk
from ncdiag.playbook.schema import Expect, RemedyStep, RunStep
from ncdiag.playbook.targets import Answer, Target

PROBE = '''"""A flag. Source: the environment."""
from ncdiag.model import Probe, fail, ok


def collect(host):
    return {"bad": host.environ().get("NCCL_DEMO") == "bad"}


def judge(snapshot):
    for node, facts in snapshot.each("demo-flag"):
        if facts["bad"]:
            yield fail("NCCL_DEMO is bad", node, cause="demo", remedy="take it out", source="env", observed="bad")
        else:
            yield ok("NCCL_DEMO is fine", node, source="env")


PROBE = Probe("demo-flag", "the flag is fine", judge, collect)
'''

BOOK = """
title: Demo
looks_like: [bad]
known_by: [the flag]
steps:
  - id: flag
    probe: demo-flag
    then: {ok: stop, unknown: step:ask}
  - id: kernel
    run: [uname, -s]
    expect: {exit: 0, contains: [Linux]}
    then: {unmet: stop}
  - id: ask
    ask: Take it out?
    then: {no: step:advice}
  - id: unset
    remedy: Take it out.
    risk: low
    undo: Put it back.
    action: {unset_env: [NCCL_DEMO]}
    verify: {probe: demo-flag}
    then: {applied: stop}
  - id: advice
    remedy: Do it by hand.
    risk: none
    undo: Nothing.
    verify: {look: the flag}
    then: playbook:other
"""

OTHER = """
title: Other
looks_like: [x]
known_by: [x]
steps:
  - id: back
    ask: Again?
    then: playbook:demo
"""


class Bench:
    """Own playbooks, an own probe and an environment file."""

    def __init__(self, folder: Path) -> None:
        self.books, self.probes, self.env = folder / "books", folder / "probes", folder / "job.env"
        self.books.mkdir()
        self.probes.mkdir()
        (self.books / "demo.yaml").write_text(BOOK)
        (self.books / "other.yaml").write_text(OTHER)
        (self.probes / "demo_flag.py").write_text(PROBE)
        self.env.write_text("NCCL_DEMO=bad\n")

    def environment(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.env.read_text().splitlines())

    def walk(self, **options: object) -> Record:
        target = Target(str(options.pop("nodes", "local")), [str(self.probes)], environment=self.environment)
        walk = Walk(target, lambda name: proved(name, self.books), inputs=Inputs(self.env), **options)  # type: ignore[arg-type]
        return walk.run(proved("demo", self.books))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def path(record: Record) -> list[str]:
    return [f"{step.playbook}/{step.id}:{step.outcome}" for step in record.steps]


class Confirms(Nobody):
    def __init__(self, agrees: bool) -> None:
        super().__init__()
        self.agrees, self.asked = agrees, []  # type: ignore[var-annotated]

    def confirm(self, step: RemedyStep, prepared: Prepared) -> bool:
        self.asked.append((step.id, prepared.undo, prepared.preview))
        return self.agrees


def test_dry_run_changes_nothing_and_shows_what_it_would_do(bench: Bench) -> None:
    record = bench.walk()
    assert path(record) == [
        "demo/flag:fail",
        "demo/kernel:met",
        "demo/ask:unanswered",
        "demo/unset:shown",
        "demo/advice:shown",
        "other/back:unanswered",
    ]
    assert bench.env.read_text() == "NCCL_DEMO=bad\n"
    assert "-NCCL_DEMO=bad" in record.steps[3].note
    assert (record.result, record.exit) == ("to-do", 1)
    assert "walked already" in record.ended


def test_a_healthy_machine_ends_at_once(bench: Bench) -> None:
    bench.env.write_text("")
    record = bench.walk(apply=True, max_risk="high")
    assert path(record) == ["demo/flag:ok"]
    assert (record.result, record.exit) == ("clear", 0)


def test_a_confirmed_remedy_is_applied_and_proved(bench: Bench) -> None:
    person = Confirms(True)
    record = bench.walk(apply=True, person=person)
    assert path(record)[-1] == "demo/unset:applied"
    assert (record.result, record.exit) == ("repaired", 0)
    assert bench.env.read_text() == ""
    assert person.asked[0][1].startswith("mv "), "the undo is known before"
    assert "ok: NCCL_DEMO is fine" in record.steps[-1].evidence[0].text


def test_yes_covers_up_to_the_stated_risk(bench: Bench) -> None:
    assert bench.walk(apply=True, max_risk="none").result == "to-do"
    assert bench.env.read_text() == "NCCL_DEMO=bad\n"
    assert bench.walk(apply=True, max_risk="low").result == "repaired"


def test_not_confirmed_and_not_allowed_change_nothing(bench: Bench) -> None:
    assert bench.walk(apply=True, person=Confirms(False)).result == "to-do"
    assert bench.walk(apply=False, max_risk="high").result == "to-do"
    assert bench.walk(apply=True).result == "to-do", "nobody is there to confirm"
    assert bench.env.read_text() == "NCCL_DEMO=bad\n"


def test_unasked_only_where_its_own_check_fails(bench: Bench) -> None:
    """--yes must not 'repair' what the check does not call broken, even if an outcome leads to the remedy."""
    (bench.books / "demo.yaml").write_text(BOOK.replace("ok: stop", "ok: step:unset"))
    bench.env.write_text("NCCL_DEMO=good\n")
    record = bench.walk(apply=True, max_risk="high")
    assert "demo/unset:shown" in path(record)
    assert bench.env.read_text() == "NCCL_DEMO=good\n"


def test_a_remedy_that_does_not_help_is_a_failure(bench: Bench) -> None:
    (bench.books / "demo.yaml").write_text(BOOK.replace("{unset_env: [NCCL_DEMO]}", "{set_env: NCCL_OTHER, value: x}"))
    record = bench.walk(apply=True, person=Confirms(True))
    assert "demo/unset:failed" in path(record)
    assert (record.result, record.exit) == ("failed", 1)


def test_a_snapshot_is_judged_and_its_machine_steps_are_not_run(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    nodes = {name: NodeFacts(name, {"demo-flag": {"bad": name == "b"}}) for name in ("a", "b")}
    file.write_text(json.dumps(Snapshot(nodes).as_dict()))
    record = bench.walk(nodes=f"file:{file}", apply=True, max_risk="high")
    assert path(record)[:2] == ["demo/flag:fail", "demo/kernel:unknown"]
    assert "not run" in record.steps[1].note
    assert "this machine only" in next(step for step in record.steps if step.id == "unset").note
    assert bench.env.read_text() == "NCCL_DEMO=bad\n"


def test_unread_is_not_healthy(bench: Bench) -> None:
    (bench.probes / "demo_flag.py").write_text(PROBE.replace("host.environ()", "host.missing()"))
    record = bench.walk()
    assert path(record)[0] == "demo/flag:unknown"
    assert (record.result, record.exit) == ("incomplete", 3)


def test_answers_given_beforehand(bench: Bench) -> None:
    record = bench.walk(person=Nobody({"ask": "no"}))
    assert "demo/ask:no" in path(record)
    assert "demo/unset:shown" not in path(record)
    assert "demo/ask:unanswered" in path(bench.walk(person=Nobody({"ask": "perhaps"})))


@pytest.mark.parametrize(
    ("cause", "second"),
    [
        ("other", "other/back:unanswered"),
        ("demo", "demo/kernel:met"),
        ("nosuch", "demo/kernel:met"),
        ("../x", "demo/kernel:met"),
    ],
)
def test_a_probe_leads_to_the_playbook_of_the_cause_it_names(bench: Bench, cause: str, second: str) -> None:
    (bench.books / "demo.yaml").write_text(BOOK.replace("ok: stop", "fail: cause"))
    (bench.probes / "demo_flag.py").write_text(PROBE.replace('cause="demo"', f'cause="{cause}"'))
    assert path(bench.walk())[1] == second


def test_the_time_limit_ends_it(bench: Bench) -> None:
    record = bench.walk(deadline_s=0.0)
    assert record.cut_short
    assert record.exit == 3


def test_a_link_to_a_broken_playbook_keeps_what_was_found(bench: Bench) -> None:
    (bench.books / "other.yaml").write_text("title: [")
    record = bench.walk()
    assert record.cut_short
    assert "other.yaml:1" in record.ended
    assert len(record.steps) == 5


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([Answer("a", 0, "good")], "met"),
        ([Answer("a", 1, "good")], "unmet"),
        ([Answer("a", 0, "bad good")], "unmet"),
        ([Answer("a", 0, "good"), Answer("b", None, "no answer")], "unknown"),
        ([Answer("a", 0, "bad"), Answer("b", None, "no answer")], "unmet"),
        ([], "unknown"),
    ],
)
def test_outcome_of_a_command(answers: list[Answer], outcome: str) -> None:
    assert judge(answers, Expect(exit=0, contains=["good"], lacks=["bad"])) == outcome


def test_the_record_as_json_and_markdown(bench: Bench) -> None:
    record = bench.walk()
    data = json.loads(json.dumps(record.as_dict()))
    assert (data["schema"], data["command"], data["result"], data["exit"]) == (1, "playbook", "to-do", 1)
    assert {"playbook", "id", "kind", "text", "outcome", "note", "evidence", "goto", "took_s"} <= set(data["steps"][0])
    assert data["steps"][3]["undo"].startswith("mv ")
    text = as_markdown(record)
    assert text.startswith("# ncdiag playbook: Demo\n")
    assert "dry run, nothing was changed" in text
    assert "- **fail** demo/flag: probe demo-flag\n" in text


def test_the_record_says_in_words_how_it_ended_and_what_was_seen(bench: Bench) -> None:
    (bench.books / "other.yaml").write_text(OTHER.replace("    then: playbook:demo\n", ""))
    dry = bench.walk()
    assert dry.ended == "The walk came to the end of other; nothing was changed."
    assert "result: **to-do**, something waits for a person. The walk came" in as_markdown(dry)
    (bench.books / "demo.yaml").write_text(BOOK.replace("then: {applied: stop}", "then: stop"))
    assert bench.walk().ended == "The walk ended at demo/unset: this remedy is only shown, it was not carried out."
    assert bench.walk(apply=True, person=Confirms(True)).ended.endswith("this remedy was carried out.")
    assert bench.walk().ended.endswith("with the outcome ok: the playbook looks no further then.")


@pytest.mark.parametrize(
    ("observed", "words"),
    [
        ({"synchronised": False, "offset_s": None, "max": 1.5}, "synchronised: no, max: 1.5"),
        ([1, "x", True], "1, x, yes"),
        ({"ports": [1, 2], "by": {"a": []}}, "ports: (1, 2), by: (a: none)"),
        (
            {"NCCL_IB_HCA": "mlx5", "took_s": 0.5, "hosts": [{"line": 3, "text": "x"}]},
            "NCCL_IB_HCA: mlx5, took: 0.5 s, hosts: (line: 3, text: x)",
        ),
        ("as it is", "as it is"),
        (0, "0"),
    ],
)
def test_what_was_seen_is_no_python(observed: object, words: str) -> None:
    assert in_words(observed) == words


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (1024, "open files", "1024 open files"),
        (35974299648, "bytes free", "33.5 GiB free"),
        (1 << 20, "bytes", "1.0 MiB"),
        (1500, "bytes", "1500 bytes"),
        (0, "free inodes", "0 free inodes"),
        ({"gpu01": 4}, "GPUs", "gpu01: 4"),
        ("unlimited", "bytes", "unlimited"),
        (True, "GPUs", "yes"),
        (7, "", "7"),
    ],
)
def test_a_bare_number_has_its_unit(value: object, unit: str, words: str) -> None:
    assert figure(value, unit) == words
    finding = warn("s", "a", observed=value, unit=unit)
    assert f"(seen: {words})" in seen_in([finding])[0].text


def test_a_command_says_what_its_answer_means(bench: Bench) -> None:
    (bench.books / "demo.yaml").write_text(BOOK.replace("[Linux]}", "[Minix]}\n    unmet: it is no Minix"))
    record = bench.walk()
    assert (record.steps[1].outcome, record.steps[1].note) == ("unmet", "it is no Minix")
    assert "\n- **unmet** demo/kernel: uname -s\n  - it is no Minix\n" in as_markdown(record)
    (bench.books / "demo.yaml").write_text(
        BOOK.replace("    expect: {exit: 0, contains: [Linux]}\n    then: {unmet: stop}\n", "").replace(
            "[uname, -s]", "[cat, /proc/self/no-such-file]"
        )
    )
    read = bench.walk().steps[1]
    assert (read.outcome, read.note) == ("read", "it ended with exit 1"), "an error is not told as an answer"


@pytest.mark.parametrize(
    ("runs", "text", "outcome"),
    [
        ("chrony-runs", "506 Cannot talk to daemon\n", "unmet"),
        ("chrony-runs", "200 OK\n4 sources online\n0 sources offline\n", "met"),
        ("chrony", "Reference ID    : 00000000 ()\nLeap status     : Not synchronised\n", "unmet"),
        ("chrony", "Reference ID    : C0000201 (192.0.2.1)\nLeap status     : Normal\n", "met"),
    ],
)
def test_a_time_service_that_does_not_run_is_told_from_one_without_a_source(runs: str, text: str, outcome: str) -> None:
    step = load("clock-skew").step(runs)
    assert isinstance(step, RunStep) and step.unmet
    assert judge([Answer("a", int(text.startswith("506")), text)], step.expect) == outcome


@pytest.mark.skipif(
    not Path("/usr/bin/chronyc").exists() or Path("/run/chrony/chronyd.sock").exists(),
    reason="needs chronyc, and no chronyd that answers it",
)
def test_chronyc_without_its_daemon() -> None:
    step = load("clock-skew").step("chrony-runs")
    assert isinstance(step, RunStep)
    assert judge(Target("local").run(step.run, 15), step.expect) == "unmet"


def test_evidence_cannot_break_out_of_the_ticket() -> None:
    taken = Taken("p", "s", "run", "x | y\n# no", "read", evidence=[Seen(("n",), "c", "```\n# heading\n````")])
    text = as_markdown(Record("p", "T", "local", False, "now", [taken]))
    assert "\n`````\n```\n# heading\n````\n`````\n" in text
    assert "- **read** p/s: x | y # no\n" in text


def test_a_long_answer_keeps_head_and_tail() -> None:
    short = shorten("a" * 5000 + "z" * 5000)
    assert short.startswith("aaa") and short.endswith("zzz")
    assert "6000 characters left out" in short


def test_a_remedy_for_one_answer_says_so_where_nobody_answered() -> None:
    tree = next(TREES.glob("*.tar.gz"))
    for answers, said in (({}, True), ({"what": "lock"}, False)):
        record = Walk(Target(f"file:{tree}"), proved, Nobody(answers)).run(proved("rank-stuck-outside-collective"))
        shown = next(step for step in record.steps if step.id == "lock")
        assert ("only where the answer to `what` is `lock`" in shown.note) is said


TREES = Path(__file__).parents[1] / "trees"


@pytest.mark.parametrize("name", names())
def test_every_playbook_can_be_walked_on_a_captured_machine(name: str) -> None:
    tree = next(TREES.glob("*.tar.gz"))
    record = Walk(Target(f"file:{tree}"), proved).run(proved(name))
    assert record.steps and record.ended and not record.cut_short
    assert "applied" not in [step.outcome for step in record.steps]
    assert record.result in ("clear", "to-do", "incomplete")
    assert len(as_markdown(record)) < 200_000


@pytest.mark.parametrize("symptom", [*load("triage").steps[0].outcomes()])
def test_triage_from_each_symptom(symptom: str) -> None:
    tree = next(TREES.glob("*.tar.gz"))
    record = Walk(Target(f"file:{tree}"), proved, Nobody({"symptom": symptom})).run(proved("triage"))
    assert len(record.steps) > 3
    assert not record.cut_short
