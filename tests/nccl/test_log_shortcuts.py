"""What the parser remembers to be fast changes nothing: a reading without memory and without shortcuts says the same of every log."""

from __future__ import annotations

import gzip
import pathlib
import random
from typing import Any, Callable, Dict, List

import pytest

from ncdiag.nccl import shortcuts
from ncdiag.nccl.log import NcclLog

from . import composed

LOGS = pathlib.Path(__file__).resolve().parents[1] / "logs"
SIZE = 60_000  # bytes of a log that are read

Lines = List[bytes]


def _before(prefix: bytes) -> Callable[[Lines], Lines]:
    return lambda lines: [prefix + line for line in lines]


def _stamped(lines: Lines) -> Lines:
    """As containerd writes them, each with another time; Docker leaves zeros at the end out."""
    return [
        b"2026-11-29T16:%02d:%02d.%sZ stdout F " % (number // 60 % 60, number % 60, str(123456789 + 10 * number).rstrip("0").encode()) + line
        for number, line in enumerate(lines)
    ]  # fmt: skip


def _docker(lines: Lines) -> Lines:
    return [
        b'{"log":"%s\\n","stream":"stdout","time":"2026-11-29T16:53:57.1Z"}'
        % line.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        for line in lines
    ]


def _damaged(lines: Lines) -> Lines:
    """Lines cut, lines joined with others, lines within others."""
    chance, out = random.Random(len(lines)), list(lines)
    for _ in range(max(3, len(out) // 10)):
        place, other = chance.randrange(len(out)), chance.choice(lines)
        cut = chance.randrange(len(out[place]) + 1)
        out[place] = out[place][:cut] + chance.choice((b"", other, other + out[place][cut:]))
    return out


def _shuffled(lines: Lines) -> Lines:
    return random.Random(1).sample(lines, len(lines))


def _folded(lines: Lines) -> Lines:
    return [line + b" [repeated 7x across cluster]" * (number % 3 == 0) for number, line in enumerate(lines)]


CHANGES: Dict[str, Callable[[Lines], Lines]] = {
    "plain": _before(b""),
    "containerd": _stamped,
    "docker": _docker,
    "ray": _before(b"\x1b[36m(RayWorkerWrapper pid=4001, ip=192.0.2.1)\x1b[0m "),
    "vllm": _before(b"(Worker_TP1 pid=4001) "),
    "kubernetes": _before(b"[pod/engine-1/worker] "),
    "damaged": _damaged,
    "shuffled": _shuffled,
    "folded": _folded,
}


def _said(parser: NcclLog) -> Dict[str, Any]:
    facts = parser.finish().to_json()
    for source in facts["sources"]:
        source["size_bytes"] = None
    return facts


def _fast(lines: Lines) -> Dict[str, Any]:
    parser = NcclLog()
    parser.feed("job.log", b"".join(line + b"\n" for line in lines))
    return _said(parser)


def _careful(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> Dict[str, Any]:
    marks = (shortcuts.noise, shortcuts.channel)  # which read nothing
    without = {start: reader for start, reader in shortcuts.READERS.items() if reader in marks}
    parser = NcclLog()
    with monkeypatch.context() as patch:
        patch.setattr(shortcuts, "READERS", without)
        for line in lines:
            parser.feed("job.log", line + b"\n")
            parser._reader.begin(parser._source)
            parser._reader._known.clear()
    return _said(parser)


def _files() -> List[pathlib.Path]:
    return sorted(path for path in LOGS.rglob("*.gz") if b"NCCL INFO" in gzip.decompress(path.read_bytes()))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("version", composed.VERSIONS, ids=composed.dotted)
def test_composed_logs(version: composed.Version, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = CHANGES[change]([line.encode() for line in composed.job(version)])
    assert _fast(lines) == _careful(lines, monkeypatch)


@pytest.mark.parametrize("path", _files(), ids=lambda path: f"{path.parent.name}-{path.name.split('.')[0]}")
def test_captured_logs(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is, and with two of the changes, in turn."""
    whole = gzip.decompress(path.read_bytes())[:SIZE].split(b"\n")
    names = list(CHANGES)
    first = _files().index(path)
    for name in ("plain", names[first % len(names)], names[(first + 4) % len(names)]):
        lines = CHANGES[name](whole)
        assert _fast(lines) == _careful(lines, monkeypatch), name
