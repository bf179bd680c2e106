"""Sources that tell of errors of which nothing is known: beside them, what another source shows at work is no answer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import TEXT_LIMIT, bare, mild
from ncdiag.model import Evidence

BLOCKS = 8  # at the beginning of a source that are looked at; and the last one
LINES_KEPT = 2  # of a source
NAMED_LIMIT = 3  # sources that are named

_LITERALS = (
    b"ERROR", b"rror: ", b"FATAL", b"atal", b"CRITICAL", b"SEVERE", b"Traceback", b"Exception", b"egfault", b"egmentation fault", b"Killed", b"core dumped", b"anic",
)  # fmt: skip
_HEAD = 120  # characters of a line in which a logger names its level
_LEVEL = re.compile(r"(?:^|[\s\[(|<])(?:ERROR|FATAL|CRITICAL|SEVERE|PANIC)(?=[\s\]:)|>]|$)")
_ERROR = re.compile(
    r"\s*(?:(?:\w+\.){0,6}[A-Z]\w*(?:Exception|Error)|(?:[\w./-]{1,40}: )?(?:(?:fatal )?error|fatal|panic)|Error): |Traceback \(most recent|Killed\b"
    r"|.{0,80}(?:\bsegfault at|[Ss]egmentation fault|[Kk]illed process|core dumped)"
)
"""How loggers, interpreters, compilers and kernels call what is wrong. Facts of hosts count `errors`, in small letters."""
_NONE = re.compile(
    r"(?i)\b(?:no|0|without) (?:errors?|fatal)|(?:errors?|fatal)\W{1,3}(?:0|none)\b|\blevel\b.{0,12}\berror"
)


class Unexplained:
    """The first lines of each source that look like errors."""

    def __init__(self) -> None:
        self._found: dict[str, list[tuple[Evidence, float]]] = {}

    def look(self, source: str, block: bytes, first: int, start: float) -> None:
        """Complete lines, the first of which has number `first`; `start` and its number make the order of one."""
        found = self._found.get(source, [])
        if len(found) >= LINES_KEPT or not any(word in block for word in _LITERALS):
            return
        for number, raw in enumerate(block.split(b"\n"), first):
            if any(word in raw for word in _LITERALS) and _is_error(text := raw.decode("utf-8", "replace")):
                at = Evidence(source, text.strip()[:TEXT_LIMIT], number)
                if len(found) < LINES_KEPT and all(at != known for known, _ in found):
                    found.append((at, start + number))
                    self._found[source] = found

    def signals(self, known: Collection[str]) -> Iterator[Signal]:
        """`known`: sources of which a rule or a reader has understood something."""
        unread = sorted(source for source in self._found if source not in known)
        if not unread:
            return
        more = f" and {len(unread) - NAMED_LIMIT} more" if len(unread) > NAMED_LIMIT else ""
        lines = [line for source in unread[:NAMED_LIMIT] for line in self._found[source]]
        yield Signal(
            "",
            Says.SYMPTOM,
            f"{', '.join(unread[:NAMED_LIMIT])}{more}: errors that are not known here: {bare(lines[0][0].text)[:_HEAD]}",
            [line for line, _ in lines],
            order=lines[0][1],
        )


def _is_error(text: str) -> bool:
    said = bare(text[:TEXT_LIMIT])
    wrong = _LEVEL.search(said, 0, _HEAD) or _ERROR.match(said)
    return wrong is not None and not mild(said) and _NONE.search(said) is None
