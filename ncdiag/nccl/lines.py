"""From bytes of a file to lines, and from what stands in front of an NCCL message to who said it.

Prefixes of launchers (Ray, vLLM, torchrun, mpirun, Slurm, Kubernetes, docker, journald, systemd), time stamps and colours may stand in front
of NCCL's own `HOST:PID:TID [CUDADEV] `, so that one is looked for from the right.
"""

from __future__ import annotations

import io
import re
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

LINE_LIMIT = 64 * 1024  # bytes of a line that are read; the rest of a longer one is dropped
BLOCK = 128 * 1024  # bytes worked on at a time; a size that stays in the cache of one core

_ANSI = re.compile(rb"\x1b(?:\[[0-9;?]{0,64}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)|[@-Z\\^_])")
_DOCKER = re.compile(rb'^\{"log":"([^"\\\n]*(?:\\.[^"\\\n]*)*)"[^\n]*\}$', re.M)
_DOCKER_ESCAPES = {
    b"\\n": b"",
    b"\\r": b"",
    b"\\t": b"\t",
    b'\\"': b'"',
    b"\\\\": b"\\",
    b"\\u003c": b"<",
    b"\\u003e": b">",
    b"\\u0026": b"&",
}
_DOCKER_ESCAPE = re.compile(rb'\\(?:u003[ce]|u0026|[nrt"\\])')


def _dirty(block: bytes) -> bool:
    return b"\x1b" in block or b"\0" in block or b"\r" in block or (b"{" in block and b'{"log":"' in block)


def clean(block: bytes) -> bytes:
    """The block without colours, NULs (also those of UTF-16) and carriage returns, docker's JSON lines unpacked. Keeps the number of lines."""
    if not _dirty(block):
        return block
    block = block.translate(None, b"\0").replace(b"\r\n", b"\n").replace(b"\r", b" ")
    for colour in set(_ANSI.findall(block, 0, 8192)):  # the few that a launcher uses: faster than the expression
        block = block.replace(colour, b"")
    block = _ANSI.sub(b"", block) if b"\x1b" in block else block
    if b'{"log":"' not in block:
        return block
    return _DOCKER.sub(lambda m: _DOCKER_ESCAPE.sub(lambda e: _DOCKER_ESCAPES[e.group()], m.group(1)), block)


def split(block: bytes) -> List[bytes]:
    """Its lines, with their newlines: in half the time of block.split()."""
    return io.BytesIO(block).readlines()


def _may_be_long(piece: bytes) -> bool:
    """Whether a line within the piece may be longer than LINE_LIMIT: cheaper than to measure all."""
    half = LINE_LIMIT // 2
    return any(piece.find(b"\n", start, start + half) < 0 for start in range(0, len(piece), half))


class Lines:
    """The complete lines of one source, block by block."""

    def __init__(self) -> None:
        self.rest = b""
        self.skipping = False  # inside a line that is longer than the limit
        self.cut = 0  # such lines

    def feed(self, data: bytes) -> Iterator[Iterable[bytes]]:
        """Yield complete lines with their newlines. The unfinished last one is kept for the next call, at most LINE_LIMIT bytes of it.

        Most are an open BytesIO: lines that are made one by one stay in the cache, and those of a list do not.
        """
        start, size = 0, len(data)
        while start < size:
            if self.skipping:
                start = data.find(b"\n", start)
                if start < 0:
                    return
                self.skipping = False
            stop = start + BLOCK if size - start > 2 * BLOCK else size
            end = data.rfind(b"\n", start, stop) + 1
            if not end:
                self._keep(self.rest + data[start:stop])
                start = stop
                continue
            block = clean(self.rest + data[start:end])
            self.rest, start = b"", end
            if _may_be_long(block):
                yield self._shortened(split(block))
            else:
                yield io.BytesIO(block)

    def _shortened(self, lines: List[bytes]) -> List[bytes]:
        self.cut += sum(len(line) > LINE_LIMIT + 1 for line in lines)
        return [line if len(line) <= LINE_LIMIT + 1 else line[:LINE_LIMIT] + b"\n" for line in lines]

    def _keep(self, rest: bytes) -> None:
        self.skipping = len(rest) > LINE_LIMIT
        self.cut += self.skipping
        self.rest = rest[:LINE_LIMIT]

    def end(self) -> Optional[bytes]:
        """The last line when no newline ended it, else None."""
        last, self.rest = self.rest, b""
        self.skipping = False
        return clean(last) if last else None


class Speaker(NamedTuple):
    """Who printed a record, out of what stands in front of `NCCL INFO`."""

    host: Optional[str]
    pid: Optional[int]
    tid: Optional[int]
    dev: Optional[int]  # current CUDA device of that thread; not a rank
    code: Optional[str]  # file:line of a WARN
    function: Optional[str]  # 2.30.7 and later
    before: str  # launcher prefix, time stamps


_SPEAKER = re.compile(
    rb"([^\s:\[\]<>|(){}\"'/]{1,255}):(\d{1,10}):(\d{1,10})[ \t]{1,4}(?:\[(-?\d{1,10})\][ \t]{0,4})?"
    rb"(?:([\w./+-]{1,200}):(\d{1,7})[ \t]{1,4}(?:\(([^()\n]{0,200})\)[ \t]{1,4})?)?$"
)
_CODE = re.compile(rb"(?:^|\s)([\w./+-]{1,200}\.\w{1,4}):(\d{1,7})[ \t]{1,4}(?:\(([^()\n]{0,200})\)[ \t]{1,4})?$")
_TRACE_TIME = re.compile(rb"\d+\.\d+ \w+:\d+ $")  # `MSECS FUNC:LINE ` of a trace build


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def speaker(head: bytes) -> Speaker:
    """Read the part of a line before `NCCL LEVEL`. Everything is None where it does not stand there (a log cut down to messages)."""
    head = _TRACE_TIME.sub(b"", head[-1000:])
    match = _SPEAKER.search(head, max(0, len(head) - 560))
    if match:
        host, pid, tid, dev, file, line, function = match.groups()
        code = _text(file) + ":" + _text(line) if file else None
        return Speaker(
            _text(host),
            int(pid),
            int(tid),
            int(dev) if dev else None,
            code,
            _text(function) if function else None,
            _text(head[: match.start()]),
        )
    match = _CODE.search(head)
    if match:
        file, line, function = match.groups()
        return Speaker(
            None,
            None,
            None,
            None,
            _text(file) + ":" + _text(line),
            _text(function) if function else None,
            _text(head[: match.start()]),
        )
    return Speaker(None, None, None, None, None, None, _text(head))


_LABELS: List[Tuple[str, re.Pattern[str]]] = [
    ("ray", re.compile(r"\((?P<name>[\w:.<>-]+) pid=(?P<pid>\d+)(?:, ip=(?P<ip>[\w.:]+))?\)")),
    ("mpirun", re.compile(r"\[\d+,(?P<rank>\d+)\]<(?:stdout|stderr)>")),
    ("torchrun", re.compile(r"^\[(?:default|rank|trainer)(?P<rank>\d+)\]:")),
    ("kubernetes", re.compile(r"^\[?pod/(?P<name>[\w.-]+)")),
    ("kubernetes", re.compile(r"\dZ? (?:stdout|stderr) [FP] ?$")),
    ("compose", re.compile(r"^(?P<name>[\w.-]+) +\| ")),
    ("journald", re.compile(r"^\w{3} [ \d]\d \d\d:\d\d:\d\d (?P<node>[\w.-]+) (?P<name>[\w.@/-]+)\[(?P<pid>\d+)\]: ")),
    ("slurm", re.compile(r"^ *(?P<rank>\d+): ")),
]
_TIME = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|(?<!\d)\d\d:\d\d:\d\d(?:[.,]\d{1,9})?")


def label(before: str) -> Dict[str, Any]:
    """What a launcher's prefix says: {"by": "mpirun", "rank": 3}. Empty when there is none that is known."""
    before = before[-300:]
    for by, pattern in _LABELS if before else ():
        match = pattern.search(before)
        if match:
            found = {
                key: int(value) if key in ("rank", "pid") else value
                for key, value in match.groupdict().items()
                if value
            }
            return {"by": by, **found}
    return {}


def time_of(before: str) -> Optional[str]:
    """The last time stamp in the prefix, as printed; NCCL's own (2.26 and later) stands last."""
    times = _TIME.findall(before[-300:])
    return times[-1] if times else None
