"""The same incident under other names, prefixes and orders gives the same cause; cut short it never gives another one as sure."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause

OWN = sorted((Path(__file__).parent / "cases").glob("*.log"))
SHARED = Path(__file__).parents[3] / "shared" / "cases" / "incidents"
GIVEN = sorted(path for path in SHARED.glob("*") if path.is_dir()) if SHARED.is_dir() else []
CUTS = 40  # places at which a long log is cut


def causes_of(files: dict[str, str]) -> list[Cause]:
    streams = [Stream(name, iter([text.encode()]), text.encode()[:65536]) for name, text in files.items()]
    return of_streams(streams).verdict.causes


def other_hosts(text: str) -> str:
    """Other host names, pids and addresses, each replaced consistently."""
    text = re.sub(
        r"\b(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\b(?!\.)",
        lambda m: (
            m[0]
            if m[1] in ("127", "0", "172", "169", "192") or int(m[1]) < 10
            else f"{m[1]}.{(int(m[2]) + 7) % 250}.{m[3]}.{m[4]}"
        ),
        text,
    )
    return re.sub(
        r"\b([A-Za-z][\w-]*):(\d{2,7}):(\d{2,7}) ",
        lambda m: f"zed-{sum(map(ord, m[1])) % 97}:{int(m[2]) % 90000 + 11}:{int(m[3]) % 90000 + 11} ",
        text,
    )


def in_a_pod(text: str) -> str:
    return "".join(
        f"[pod/trainer-0/main] {line}" if "NCCL" in line or "rror" in line else line for line in text.splitlines(True)
    )


def coloured(text: str) -> str:
    return "".join(f"\x1b[36m{line.rstrip()}\x1b[0m\n" if "NCCL" in line else line for line in text.splitlines(True))


def dos(text: str) -> str:
    return text.replace("\n", "\r\n")


def docker(text: str) -> str:
    return "".join(json.dumps({"log": line, "stream": "stderr"}) + "\n" for line in text.splitlines(True))


def kubectl_of_json(text: str) -> str:
    return "".join(
        "2027-03-04T05:06:07Z " + json.dumps({"level": "info", "message": line}) + "\n" for line in text.splitlines()
    )


def exported(text: str) -> str:
    return json.dumps([{"insertId": "x", "textPayload": line} for line in text.splitlines()], indent=2)


def searched(text: str) -> str:
    hits = [{"_id": "x", "_source": {"message": line, "kubernetes": {"pod": "p"}}} for line in text.splitlines()]
    return json.dumps({"took": 3, "hits": {"total": len(hits), "hits": hits}})


def behind(prefix: str) -> Callable[[str], str]:
    return lambda text: "".join(prefix + line for line in text.splitlines(True))


VARIANTS: dict[str, Callable[[str], str]] = {"hosts": other_hosts, "pod": in_a_pod, "colours": coloured, "dos": dos}
JSON: dict[str, Callable[[str], str]] = {
    "docker": docker,
    "kubectl of JSON": kubectl_of_json,
    "exported": exported,
    "searched": searched,
}
COLLECTED = {  # what a collector of logs puts before every line
    "containerd": "2027-03-04T05:06:07.123456789Z stderr F ",
    "journald": "Mar  4 05:06:07 host-x vllm[77]: ",
    "compose": "vllm-1  | ",
    "mpirun": "[1,3]<stdout>:",
    "mpirun stamp": "Thu Mar  4 05:06:07 2027[1,3]<stderr>:",
    "journald short-iso": "2027-03-04T05:06:07+0100 host-x vllm[77]: ",
    "syslog of a container": "Mar  4 05:06:07 host-x docker/engine: ",
    "ts": "Mar 04 05:06:07 ",
    "clock": "2027-03-04 05:06:07,123 ",
    "clock in brackets": "[2027-03-04 05:06:07] ",
    "grep": "logs/host-x.out:",
    "cat": "    12\t",
}


def shuffled(text: str, seed: int) -> str:
    """Lines of NCCL processes in another order among each other; those of one process keep theirs."""
    lines = text.splitlines(True)
    speakers = [match[1] if (match := re.match(r"\S*?([\w-]+:\d+):\d+ ", line)) else None for line in lines]
    places = [index for index, speaker in enumerate(speakers) if speaker]
    queues: dict[str, list[str]] = {}
    for index in places:
        queues.setdefault(str(speakers[index]), []).append(lines[index])
    dice = random.Random(seed)
    for index in places:
        name = dice.choice([name for name, queue in queues.items() if queue])
        lines[index] = queues[name].pop(0)
    return "".join(lines)


def given(case: Path) -> tuple[dict[str, str], dict[str, str]]:
    truth = yaml.safe_load((case / "case.yaml").read_text())
    return {
        path.name: path.read_text(errors="replace") for path in sorted(case.iterdir()) if path.name != "case.yaml"
    }, truth


def prefixes(files: dict[str, str]) -> Iterator[dict[str, str]]:
    """The files cut at a line: each file in turn, the others whole."""
    for name, text in files.items():
        lines = text.splitlines(True)
        step = max(1, len(lines) // CUTS)
        for end in range(0, len(lines), step):
            yield {**files, name: "".join(lines[:end])}


def no_other_sure(files: dict[str, str], allowed: set[str]) -> None:
    for cut in prefixes(files):
        wrong = [cause.cause for cause in causes_of(cut) if cause.confidence == "sure" and cause.cause not in allowed]
        assert not wrong, {name: text.count("\n") for name, text in cut.items()}


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_own_cases_under_other_names(path: Path) -> None:
    want = path.name.split(".")[0]
    text = path.read_text()
    for name, variant in {**VARIANTS, **JSON, **{name: behind(prefix) for name, prefix in COLLECTED.items()}}.items():
        assert causes_of({"a": variant(text)})[0].cause == want, name
    assert causes_of({"a": shuffled(text, 1)})[0].cause == want
    no_other_sure({"a": text}, {want})


needs_shared = pytest.mark.skipif(not GIVEN, reason="the folder of incidents is not beside this checkout")


@needs_shared
@pytest.mark.parametrize("case", GIVEN, ids=lambda case: case.name)
def test_incident(case: Path) -> None:
    files, truth = given(case)
    causes = causes_of(files)
    names = [cause.cause for cause in causes]
    if truth["decidable"] == "yes":
        assert names[0] == truth["cause"]
    elif truth["decidable"] == "partly":
        assert truth["cause"] in names[:3]
    sure = {cause.cause for cause in causes if cause.confidence == "sure"}
    assert sure <= ({truth["cause"]} if truth["decidable"] != "no" and truth["cause"] != "unresolved" else set())


@needs_shared
@pytest.mark.parametrize("case", GIVEN, ids=lambda case: case.name)
def test_incident_under_other_names_and_cut(case: Path) -> None:
    files, truth = given(case)
    depth = {"yes": 1, "partly": 3}.get(truth["decidable"], 0)
    for variant in (*VARIANTS.values(), lambda text: shuffled(text, 5)):
        names = [cause.cause for cause in causes_of({name: variant(text) for name, text in files.items()})]
        assert not depth or truth["cause"] in names[:depth], variant
    no_other_sure(files, {truth["cause"]} if truth["decidable"] != "no" else set())
