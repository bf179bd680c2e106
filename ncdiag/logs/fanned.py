"""Output of one command on many hosts, as pdsh, clush and ansible print it -> which line is of which host.

Three forms, recognised by content: `gpu07: ` in front of every line (pdsh, clush), a heading a host (`gpu07 | CHANGED | rc=0 >>`, ansible), and a
heading between dashes (clush -b, dshbak). Hosts that write at the same time mix their lines: each host's are read by themselves.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ncdiag.explain import Signal
from ncdiag.logs.scan import Scanner

SIZE_LIMIT = 8 << 20  # bytes of a stream that are sorted by host; more is a log, no command's output
RUN_LINES = 2000  # of one host that are read at a time
LINES_EACH = 3  # lines a name has on average, at least: else it is a list of keys and values
SHARE = 0.9  # of the lines begin with a name

_NAME = rb"[A-Za-z][\w-]{0,62}(?:\.[\w-]{1,62}){0,5}"
_PREFIX = re.compile(rb"(" + _NAME + rb"): ?")
_PREFIXED = re.compile(rb"(" + _NAME + rb"):(?: (?! *\d+%\|)|$)")  # no progress bar
_ANSIBLE = re.compile(rb"(" + _NAME + rb") \| (?:CHANGED|SUCCESS|FAILED|UNREACHABLE!)(?: \| rc=-?\d+ >>| => \{)")
_DASHES = re.compile(rb"-{15,16}\s*$")
_NODES = re.compile(rb"(?=\S*\d)([A-Za-z][\w.,\[\]-]{0,200})(?: \(\d+\))?\s*$")
_NO_HOSTS = re.compile(rb"(?i)(?:error|warn(?:ing)?|info|debug|critical|fatal|notice|note|trace|bash|sh|sudo|ssh|srun|slurmstepd|ls|cat|kernel|rank\d*|default\d*|trainer\d*|epoch|steps?|iter(?:ation)?|loss|train(?:ing)?|val(?:idation)?|eval)$")  # fmt: skip
_LAUNCHER = re.compile(rb"(?:srun|slurmstepd|pdsh@[\w.-]+|clush|mpirun|mpiexec|ssh): ")
"""In front of what the launcher itself says between the lines of the hosts."""


@dataclass
class Run:
    """Lines of one host."""

    host: str
    prefix: str
    """What stands in front of each of them."""
    lines: list[bytes] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """From 1; lines of other hosts may stand between them."""


def is_fanned(head: bytes) -> bool:
    """Whether the beginning of a stream looks like output of several hosts, or of one that is named in front."""
    lines = [line.rstrip(b"\r") for line in head.split(b"\n") if line.strip()]
    return bool(lines) and (any(map(_ANSIBLE.match, lines)) or _dashed(lines) or _prefixed(lines))


def _dashed(lines: list[bytes]) -> bool:
    return any(
        _DASHES.match(above) and _NODES.match(name) and _DASHES.match(below)
        for above, name, below in zip(lines, lines[1:], lines[2:], strict=False)
    )


def _prefixed(lines: list[bytes]) -> bool:
    lines = [line for line in lines if not _LAUNCHER.match(line)]
    names = Counter(match[1] for match in map(_PREFIXED.match, lines) if match and not _NO_HOSTS.match(match[1]))
    total = sum(names.values())
    return bool(total) and total >= SHARE * len(lines) and total >= LINES_EACH * len(names)


def runs(text: bytes) -> Iterator[Run]:
    """The lines by host, each host's together, hosts in order of appearance. Lines before the first host have the host ""."""
    by_host: dict[str, list[Run]] = {}
    for number, (host, prefix, line) in enumerate(_placed(text.replace(b"\r\n", b"\n").split(b"\n")), 1):
        found = by_host.setdefault(host, [])
        if not found or found[-1].prefix != prefix or len(found[-1].lines) >= RUN_LINES:
            found.append(Run(host, prefix))
        found[-1].lines.append(line)
        found[-1].numbers.append(number)
    for found in by_host.values():
        yield from found


def _placed(lines: list[bytes]) -> Iterator[tuple[str, str, bytes]]:
    """Host, prefix, line."""
    prefixed = _prefixed([line for line in lines[:2000] if line.strip()])
    known: dict[bytes, tuple[str, str]] = {}  # by what was matched
    host, prefix = "", ""
    for number, line in enumerate(lines):
        match = _PREFIX.match(line) if prefixed else _heading(lines, number)
        if prefixed and _LAUNCHER.match(line):
            yield "", "", line
            continue
        if match and match[0] in known:
            host, prefix = known[match[0]]
        elif match and not (prefixed and _NO_HOSTS.match(match[1])):
            host, prefix = match[1].decode("ascii", "replace"), match[0].decode("ascii", "replace") if prefixed else ""
            known[match[0]] = host, prefix
        yield host, prefix, line


def _heading(lines: list[bytes], index: int) -> re.Match[bytes] | None:
    """Of ansible, or between dashes."""
    match = _ANSIBLE.match(lines[index])
    if match or not 0 < index < len(lines) - 1:
        return match
    return _NODES.match(lines[index]) if _DASHES.match(lines[index - 1]) and _DASHES.match(lines[index + 1]) else None


def read(scanner: Scanner, source: str, text: bytes) -> dict[int, str]:
    """Feeds the lines to the scanner host by host, each with its own number and order; a block of lines ends with its host. Line -> host."""
    hosts: dict[int, str] = {}
    begin, last = scanner.position, ""
    for run in runs(text):
        if run.host != last:
            scanner.end(source)
        last = run.host
        scanner.feed_some(source, b"\n".join(run.lines), run.numbers, begin - 1, run.prefix)
        hosts.update(dict.fromkeys(run.numbers, run.host) if run.host else {})
    scanner.position = begin + text.count(b"\n") + 1
    return hosts


def name(signals: Iterable[Signal], hosts: Mapping[str, Mapping[int, str]]) -> None:
    """Signals whose lines are all of one host, and that name no node, are of that host. `hosts`: source -> line -> host."""
    for signal in signals:
        found = {hosts.get(item.source, {}).get(item.line or 0) for item in signal.evidence}
        host = found.pop() if len(found) == 1 else None
        if host and not signal.where.get("node"):
            signal.where = {"node": host, **{key: value for key, value in signal.where.items() if key != "node"}}
