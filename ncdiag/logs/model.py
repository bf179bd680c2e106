"""What a log rule is, and what stands behind a line: source, number, speaker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ncdiag.explain import Says, Signal
from ncdiag.model import Evidence

STANDING = 1e12  # the order of "no further in what is here": after everything
TEXT_LIMIT = 400  # characters of a line kept as evidence


@dataclass(frozen=True)
class Line:
    """One line of one source."""

    source: str
    number: int
    """From 1."""
    text: str
    order: float
    """Position over all sources, for "earlier"."""
    before: str = ""
    """What a launcher, container runtime or journal put in front of `text`."""
    printed: str = ""
    """The text as it stands in the file, where `text` says more."""

    @property
    def shown(self) -> str:
        """The line as it stands in the file, without colours."""
        return self.before + (self.printed or self.text)

    def evidence(self) -> Evidence:
        text = self.shown.strip()
        return Evidence(self.source, text if len(text) <= TEXT_LIMIT else text[:TEXT_LIMIT] + "…", self.number)


@dataclass(frozen=True)
class Rule:
    """One wording of one thing. A line matches when one of `literals` stands in it and `regex`, where there is one, finds something."""

    cause: str
    """Slug; "" for symptoms and cascades."""
    says: Says
    literals: tuple[str, ...]
    summary: str
    """One sentence; `{name}` is a group of `regex`."""
    expression: str = ""
    exception: str = ""
    """The line does not match where this finds something."""
    condition: bool = False
    """Does not end a job."""
    candidates: tuple[str, ...] = ()
    lines: int = 1
    """How many lines from the one with the literal on `regex` may look at, joined by a blank."""
    remedy: str = ""
    detail: bool = False
    """`regex` only finds details; the rule matches without them, too."""
    kind: str = ""
    """Of its signals, see `kinds`."""

    @cached_property
    def regex(self) -> re.Pattern[str] | None:
        """Compiled when the first line holds a literal of the rule: for most rules of most logs, never."""
        return re.compile(self.expression) if self.expression else None

    @cached_property
    def unless(self) -> re.Pattern[str] | None:
        return re.compile(self.exception) if self.exception else None

    def find(self, text: str) -> dict[str, str] | None:
        """The groups of `regex`, {} without one; None when the text does not match. `peer2` is `peer` of another branch."""
        if self.unless is not None and self.unless.search(text):
            return None
        if self.regex is None:
            return {}
        match = self.regex.search(text)
        if match is None:
            return {} if self.detail else None
        return {key.rstrip("23456789"): value.strip() for key, value in match.groupdict().items() if value}


def rule(
    cause: str,
    says: Says,
    literals: str | Sequence[str],
    summary: str,
    regex: str = "",
    *,
    unless: str = "",
    condition: bool = False,
    candidates: Sequence[str] = (),
    lines: int = 1,
    remedy: str = "",
    kind: str = "",
) -> Rule:
    """A `Rule`. A `regex` that ends in `|` only finds details."""
    return Rule(
        cause,
        says,
        (literals,) if isinstance(literals, str) else tuple(literals),
        summary,
        regex.removesuffix("|"),
        unless,
        condition,
        tuple(candidates),
        lines,
        remedy,
        regex.endswith("|"),
        kind,
    )


_STAMP = r"\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_PROGRAM = r"[\w.-]{1,64} (?!kernel:)(?:[\w.@/-]{1,64}\[\d+\]|(?:docker|containerd|podman|k3s|vllm|sglang|ray|python3?|torchrun)(?:[@/-][\w.@/-]{1,64})?): "
"""A host and a program, as a journal and syslog name them. Without a process number other words before a colon look the same."""
_BEFORE = re.compile(
    r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d):?[ \t]"  # kubectl, containerd, docker --timestamps, journald -o short-iso
    rf"(?:(?:stdout|stderr) [FP] |{_PROGRAM}|\{{[a-z_]\w*=\"[^\n}}]{{0,400}}\"\}}[ \t])?"  # Loki's labels
    rf"|\w{{3}} [ \d]\d \d\d:\d\d:\d\d (?:{_PROGRAM}|(?!\S+ kernel:))"  # journald, syslog; ts
    rf"|{_STAMP}[ \t]|\[{_STAMP}(?:Z|[+-]\d\d:?\d\d)?\] ?"
    r"|\[pod/[^\]\s]+\] |[\w.-]{1,60} +\| |(?:\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})?\[\d+,\d+\]<std(?:out|err)>: ?|> ?"
    r"|[\w./+-]{1,200}\.(?:log|txt|out|err):(?:\d{1,7}:)?(?=[^ ]| {2}|$)"  # grep over several files
    r"| {1,6}\d{1,6}\t"  # cat -n
    r"| *\d{1,6}: (?![\w.@-]+: <)(?=\s*[\[(A-Za-z\"+|/$#*=~-]|\s*\d)| *\d{1,6}:\s*$)+"
)


def split_prefix(text: str) -> tuple[str, str]:
    """`(prefix, rest)`: what a launcher or log collector put in front of every line, and the line."""
    match = _BEFORE.match(text)
    return (text[: match.end()], text[match.end() :]) if match else ("", text)


_LABEL = re.compile(r"(?:\[(?:rank|default|trainer)\d+\]:|\([\w.:<>-]+(?: rank=\d+)? pid=\d+(?:, ip=[\w.:-]+)?\)) ?")


def label(text: str) -> str:
    """The process that torchrun, Ray or vLLM name in front of a line; "" without one."""
    match = _LABEL.match(text)
    return match[0] if match else ""


def bare(line: str) -> str:
    """A line without what a launcher or log collector, and then its process, put in front."""
    rest = split_prefix(line)[1]
    return rest[len(label(rest)) :]


_GUESSES = re.compile(
    r"[Tt]his can happen when|[Tt]here are some potential root causes|[Pp]ossible (?:reasons|causes) include|[Cc]ommon causes include|\(?(?:\w+, )*preempted node, etc"
)
_NUMBERED = re.compile(r"\s*\(\d\) (?:raylet|[Tt]he (?:process|worker)|ray stop|SIGKILL|Invalid memory|lagging)")
"""One entry of such a list."""


SHELL = re.compile(r"(?:\[?[\w.-]{1,60}@[\w.-]{1,60}[: ]\S{0,80}\]?[$#]|(?:\([\w.-]{1,40}\) ?)?[\w.-]{0,60}\$) \S")
"""A shell's prompt with a command: what follows is another thing's output."""


def without_guesses(text: str) -> str:
    """`text` up to where the software lists what might have happened, and nothing of a command that was typed: nothing of that was seen."""
    if ("$ " in text or "# " in text) and SHELL.match(text):
        return ""
    if "(" in text[:12] and _NUMBERED.match(text):
        return ""
    if " happen" not in text and " root causes" not in text and " include" not in text and ", etc" not in text:
        return text
    match = _GUESSES.search(text)
    return text[: match.start()] if match else text


_WHERE = ("node", "rank", "local_rank", "device", "peer", "port", "pid", "path", "interface")
_SPEAKER = (
    re.compile(
        r"\((?P<name>[A-Za-z_][\w.:-]*?)(?:_TP(?P<tp>\d+)\w*|_DP(?P<dp>\d+)\w*)?(?: rank=(?P<rank>\d+))? pid=(?P<pid>\d+)(?:, ip=(?P<node>[\w.:-]+))?\)"
    ),
    re.compile(r"\[(?:rank|default|trainer)(?P<rank>\d+)\]:"),
    re.compile(r"\[\d+,(?P<rank>\d+)\]<(?:stdout|stderr)>"),
    re.compile(r"(?:^|[\s)])(?P<node>[A-Za-z][\w-]*):(?P<pid>\d+):\d+ (?:\[-?\d+\] )?(?:\S+:\d+ )?(?:\(\w+\) )?NCCL"),
    re.compile(r"\[[\d-]+ [\d:]+(?: DP\d+)? TP(?P<rank>\d+)(?: EP\d+)?\]"),
    re.compile(
        r"^(?P<node>[A-Za-z][\w.-]*): Test (?:CUDA|NCCL|MPI) failure|^ *\.\. (?P<node2>\S+) pid (?P<pid>\d+): Test failure"
    ),
)


def speaker(text: str) -> dict[str, Any]:
    """`node`, `rank` and `pid` of whoever printed the line, as far as its prefix says so."""
    found: dict[str, Any] = {}
    for pattern in _SPEAKER:
        match = pattern.search(text[:400])
        if match:
            groups = {key.rstrip("2"): value for key, value in match.groupdict().items() if value}
            if "tp" in groups:
                groups.setdefault("rank", groups["tp"])
            for key in ("node", "rank", "pid"):
                if key in groups:
                    found.setdefault(key, int(groups[key]) if key != "node" else groups[key])
    return found


_ELSEWHERE = ("rank-missing", "rank-died", "rank-stopped", "rank-stuck-outside-collective", "slow-load-peer-timeout")
"""Of a symptom that fits one of these first, another process is the cause, not the one that tells of it."""

_UNKNOWN = re.compile(r" ?\([^()]*\?\)")  # a bracket whose content is not known


_WORDS = {
    "peer": "the peer",
    "node": "a node",
    "device": "a device",
    "interface": "an interface",
    "what": "what is asked",
    "call": "a call",
    "xid": "?",
    "waiter": "a rank",
}
"""What stands in a summary where the line does not name it."""


class _Blank(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return _WORDS.get(key, "?")


_MILD = re.compile(
    r"(?:^|[\s\[(|])(?:WARNING|WARN|INFO|DEBUG|NOTICE)(?=[\s\]):|])|\b\w*Warning:|(?:^|[\s\[])[WID]\d{4} \d\d:\d\d|\[W\d{3,4} |\blevel=(?:warn|info)"
)
_NCCL = re.compile(r"NCCL (?:WARN|INFO)|kernel:|NVRM")


def mild(text: str) -> bool:
    """Whether its own logger calls a line less than an error: it names something that is so, but did not end anything by itself."""
    head = text[:160]
    return _MILD.search(head) is not None and _NCCL.search(head) is None


def signal(found: Rule, line: Line, groups: dict[str, str]) -> Signal:
    """What a rule's match on a line says."""
    named: dict[str, Any] = {
        key: int(value) if key in ("rank", "local_rank", "pid") and value.isdecimal() else value
        for key, value in groups.items()
        if key in _WHERE
    }
    survives = (found.cause == "rank-died" and "peer" in named) or (
        "rank" in named and "died unexpectedly" in line.text
    )  # who tells of another one's end
    waits = found.says is Says.SYMPTOM and bool(found.candidates) and found.candidates[0] in _ELSEWHERE
    where = named if survives or waits else {**speaker(line.shown), **named}
    summary = _UNKNOWN.sub("", found.summary.format_map(_Blank(groups)))
    return Signal(
        found.cause,
        min(found.says, Says.STRONG) if mild(line.text) else found.says,
        summary,
        [line.evidence()],
        where,
        found.condition,
        found.candidates,
        line.order,
        found.remedy.format_map(_Blank(groups)),
        kind=found.kind,
    )
