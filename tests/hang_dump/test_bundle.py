"""Bundles: nothing secret in them, nobody else may read them, and they lead to the same verdict elsewhere."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ncdiag import bundle
from ncdiag.hang.content import DumpContent
from ncdiag.hang.dump import Request, dump
from ncdiag.model import Frame, Progress, RankState, Socket
from ncdiag.processes.logtail import TAIL_BYTES
from tests.hang_dump.secrets import ARGUMENTS, BODY, ENVIRONMENT, LOG
from tests.processes.programs import LOCK, running

NAMES = [
    "b.tar.gz",
    "b.tgz",
    "folder",
    pytest.param("b.tar.zst", marks=pytest.mark.skipif(shutil.which("zstd") is None, reason="needs zstd")),
]


def content() -> DumpContent:
    states = [
        RankState(
            10 + rank,
            "gpu01",
            "script",
            rank,
            2,
            state="T" if rank else "S",
            age_s=60.0,
            progress=Progress(3.0),
            sockets=[Socket("LISTEN", "192.0.2.1:29500")],
            threads=[
                {
                    "name": "MainThread",
                    "active": False,
                    "main": True,
                    "tid": 10 + rank,
                    "owns_gil": False,
                    "state": "S",
                    "frames": [
                        Frame("all_reduce", "torch/distributed/distributed_c10d.py", 3),
                        Frame("<module>", "train.py", 7),
                    ],
                }
            ],
        )
        for rank in (0, 1)
    ]
    return DumpContent(
        states,
        [{"communicators": [], "format": "json"}],
        {1: {"version": "2.10", "entries": []}},
        {"/var/log/a.log": ["one", "two"]},
        ["a note"],
        {"node": "gpu01", "version": "0", "pids": [10], "created": "2026-01-01T00:00:00+00:00"},
    )


@pytest.mark.parametrize("name", NAMES)
def test_what_is_saved_comes_back(name: str, tmp_path: Path) -> None:
    path = str(tmp_path / name)
    bundle.save(path, content())
    again = bundle.load(path)
    assert again.verdict() == content().verdict()
    assert again.states == content().states and again.flight == content().flight and again.ras == content().ras
    assert again.logs == content().logs and again.notes == ["a note"] and again.meta["node"] == "gpu01"


@pytest.mark.parametrize("name", NAMES)
def test_nobody_else_may_read_it(name: str, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        bundle.save(str(tmp_path / name), content())
    finally:
        os.umask(before)
    for path in [tmp_path / name, *(tmp_path / name).rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_file_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    path.touch(mode=0o644)
    path.chmod(0o644)
    bundle.save(str(path), content())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_twenty_planted_secrets_are_not_in_it(tmp_path: Path) -> None:
    log = tmp_path / "rank.log"
    log.write_text("\n".join(LOG) + "\n")
    with (
        log.open("a") as file,
        running(LOCK, *ARGUMENTS, folder=tmp_path, environment=ENVIRONMENT, stderr=file.fileno()) as (program, _),
    ):
        taken = dump(Request([program.pid], window_s=0.2, variables=True))
    (state,) = taken.states
    assert len(taken.logs[str(log)]) > 5 and set(ENVIRONMENT) - {"HF_TOKEN"} <= set(state.settings), (
        "they were looked at"
    )
    assert "--api-key <redacted>" in state.title
    bundle.save(str(tmp_path / "folder"), taken)
    for path in (tmp_path / "folder").rglob("*"):
        assert path.is_dir() or BODY not in path.read_text(), f"{path.name} holds a secret"


def test_a_private_key_that_the_end_of_a_log_begins_in(tmp_path: Path) -> None:
    log = tmp_path / "rank.log"
    key = (
        "-----BEGIN RSA PRIVATE KEY-----\n"
        + f"{BODY}\n" * (TAIL_BYTES // len(BODY))
        + "-----END RSA PRIVATE KEY-----\n"
    )
    log.write_text(key + "after the key\n")
    with log.open("a") as file, running(LOCK, folder=tmp_path, stderr=file.fileno()) as (program, _):
        taken = dump(Request([program.pid], window_s=0.2))
    assert taken.logs[str(log)][-1] == "after the key"
    assert BODY not in json.dumps([state.as_dict() for state in taken.states]) + str(taken.logs)


def archive(tmp_path: Path, files: dict[str, bytes]) -> str:
    path = tmp_path / "made.tar.gz"
    with tarfile.open(path, "w:gz") as made:
        for name, raw in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            made.addfile(member, io.BytesIO(raw))
    return str(path)


META = b'{"schema": 1, "kind": "hang-dump"}'
WHOLE = {"b/META.json": META, "b/states.json": b"[]", "b/ras.json": b"[]", "b/flight.json": b"{}"}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "no bundle"),
        ({"b/other": b"", **WHOLE}, "no bundle"),
        ({"b/META.json": b"{}"}, 'no "kind": "hang-dump"'),
        ({"b/META.json": META}, "it has no states.json"),
        ({**WHOLE, "b/META.json": b"{"}, "META.json is damaged"),
        ({**WHOLE, "b/META.json": META.replace(b"1", b"9")}, "another schema"),
        ({**WHOLE, "b/states.json": b'[{"pid": 1}]'}, "damaged rank state"),
        ({**WHOLE, "b/states.json": b"{}"}, "states.json is damaged"),
        ({**WHOLE, "b/flight.json": b'{"x": {}}'}, "invalid literal"),
    ],
)
def test_damaged_bundles_are_one_sentence(files: dict[str, bytes], said: str, tmp_path: Path) -> None:
    with pytest.raises(bundle.BundleError, match=said):
        bundle.load(archive(tmp_path, files))


def test_names_that_lead_outside_lead_nowhere(tmp_path: Path) -> None:
    bundle.load(archive(tmp_path, {**WHOLE, "../../outside": b"x", "/etc/outside": b"x"}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made.tar.gz"]


@pytest.mark.parametrize("raw", [b"", b"no archive", b"\x28\xb5\x2f\xfdno zstd"])
def test_what_is_no_archive(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(raw)
    with pytest.raises(bundle.BundleError):
        bundle.load(str(tmp_path / "x"))
    assert bundle.find(str(tmp_path)) is None
    with pytest.raises(bundle.BundleError, match="No such file"):
        bundle.find(str(tmp_path / "absent"))


def test_an_existing_folder_is_not_written_into(tmp_path: Path) -> None:
    with pytest.raises(bundle.BundleError, match="is there already"):
        bundle.save(str(tmp_path), content())
    with pytest.raises(bundle.BundleError, match="cannot write"):
        bundle.save(str(tmp_path / "no" / "b.tar.gz"), content())


def test_tar_lists_it(tmp_path: Path) -> None:
    bundle.save(str(tmp_path / "b.tar.gz"), content())
    listed = subprocess.run(
        ["tar", "tzf", str(tmp_path / "b.tar.gz")], capture_output=True, text=True, check=True
    ).stdout.split()
    assert listed == [
        f"b/{name}" for name in ("META.json", "states.json", "ras.json", "flight.json", "verdict.json", "logs/0.log")
    ]


def test_the_bundles_of_two_nodes_are_judged_together(tmp_path: Path) -> None:
    whole = content()
    for rank, state in enumerate(whole.states):
        state.node = f"gpu0{rank + 1}"
        bundle.save(
            str(tmp_path / f"{rank}.tar.gz"),
            DumpContent([state], logs={"/var/log/a.log": [state.node]}, meta={"node": state.node}),
        )
    alone = bundle.load(str(tmp_path / "0.tar.gz")).verdict()
    assert alone.cause is not None and alone.cause.cause != "rank-stopped" and alone.cause.confidence == "possible"
    together = DumpContent.together([bundle.load(str(tmp_path / f"{rank}.tar.gz")) for rank in (0, 1)])
    assert [(row.rank, row.node) for row in together.verdict().culprits] == [(1, "gpu02")]
    assert set(together.logs) == {"gpu01:/var/log/a.log", "gpu02:/var/log/a.log"}


WRONG = [None, -1, True, 1e308, 10**400, float("nan"), "x\x1b[31m\ud800", "", [], [None], {}, {"a": 1}]


def changed(value: Any, dice: random.Random) -> Any:
    """`value` with one in fifteen of what it holds replaced by something of another kind."""
    if dice.random() < 0.07:
        return dice.choice(WRONG)
    if isinstance(value, dict):
        return {key: changed(one, dice) for key, one in value.items()}
    return [changed(one, dice) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(30))
def test_values_of_another_kind_are_a_damaged_bundle(tmp_path: Path, seed: int) -> None:
    """Whatever stands in it: it is read and judged, or one sentence says that it is damaged."""
    dice, folder = random.Random(seed), tmp_path / "b"
    bundle.save(str(folder), content())
    for name in ("META.json", "states.json", "ras.json", "flight.json"):
        (folder / name).write_text(json.dumps(changed(json.loads((folder / name).read_text()), dice)))
    try:
        found = bundle.find(str(folder))
    except bundle.BundleError as error:
        assert str(folder) in str(error)
    else:
        assert found is None or found.verdict().as_dict()


def test_nesting_without_end_is_a_damaged_bundle(tmp_path: Path) -> None:
    bundle.save(str(tmp_path / "b"), content())
    (tmp_path / "b" / "states.json").write_text("[" * 200_000)
    with pytest.raises(bundle.BundleError, match="states.json is damaged"):
        bundle.load(str(tmp_path / "b"))
