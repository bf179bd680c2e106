"""`ping`: packets of one size that pass while larger ones are lost mean an MTU; nothing that passes means a peer that is not reached."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line

_HEAD = re.compile(r"^(?:PING|ping6?:?) (?P<host>\S+).*?(?P<size>\d+)(?:\((?P<whole>\d+)\))?(?: data)? bytes")
_COMMAND = re.compile(r"(?:^|[\s$#])ping6?\s(?!statistics)(?P<options>[^|;&]*)")
_TOLD = re.compile(
    r"\bping6?\s+(?P<options>(?:-[A-Za-z]\s*(?:do|dont|want|probe|\d[\d.]*)?\s+)*)(?P<host>[\w-]+(?:[.:]+[\w-]+)*)(?P<more>[^:]{0,40}):\s+(?:(?P<well>ok\b|0% (?:packet )?loss)|.*?\b(?P<loss>\d+(?:\.\d+)?)% packet loss|(?P<ill>fail(?:ed|s)?\b|lost\b|no (?:answer|reply)|time(?:d )?out))",
    re.I,
)
"""A script's own line of a ping: what it asked, and how it went."""
_SIZE = re.compile(r"-s\s*(\d+)")
_LOSS = re.compile(
    r"(?P<sent>\d+) packets transmitted, (?P<received>\d+)(?: packets)? received.*?(?P<loss>\d+(?:\.\d+)?)% packet loss"
)
_REPLY = re.compile(r"^(?P<size>\d+) bytes from \S+.*\bicmp_seq")
_PMTU = re.compile(r"^(?P<hop>\d+\??): +(?P<at>\S+) .*?\bpmtu (?P<mtu>\d+)")
LARGE = 1400  # bytes of payload beyond which a ping asks for the MTU


@dataclass
class _Ping:
    host: str
    size: int
    line: Line
    lost: bool | None = None


class Pings:
    """One ping after the other; each takes the size of its own heading or of the command before it."""

    triggers = ("ping ", "PING ", "packets transmitted", " bytes from ", " pmtu ")

    def __init__(self) -> None:
        self._found: list[_Ping] = []
        self._current: _Ping | None = None
        self._local: tuple[int, Line] | None = None
        self._narrow: tuple[int, str, Line, Line] | None = None

    def take(self, line: Line) -> bool:
        path = _PMTU.match(line.shown.strip())
        if path is not None:
            self._path(int(path["mtu"]), path["at"], line)
            return False
        told = _TOLD.search(line.text)
        if told is not None:
            self._tell(told, line)
            return False
        command, head, loss = _COMMAND.search(line.text), _HEAD.match(line.text.strip()), _LOSS.search(line.text)
        if head:
            self._begin(head["host"], int(head["size"]), line)
        elif command and not loss and command["options"].split():
            size = _SIZE.search(command["options"])
            self._begin(command["options"].split()[-1], int(size[1]) if size else 56, line)
        elif loss and self._current is not None:
            self._current.lost, self._current.line = int(loss["received"]) == 0, line
            self._current = None
        elif self._current is not None and _REPLY.match(line.text.strip()):
            self._current.lost, self._current.line = False, line
        return False

    def _tell(self, told: re.Match[str], line: Line) -> None:
        size = _SIZE.search(told["options"]) or re.search(r"\b(\d+) bytes", told["more"])
        lost = told["ill"] is not None or (told["loss"] is not None and float(told["loss"]) == 100)
        if len(self._found) < 1000:
            self._found.append(_Ping(told["host"], int(size[1]) if size else 56, line, lost))

    def _path(self, mtu: int, at: str, line: Line) -> None:
        """A hop of `tracepath` that passes less than this node's own interface."""
        if at == "[LOCALHOST]":
            self._local = mtu, line
        elif self._local is not None and mtu < self._local[0] and self._narrow is None:
            self._narrow = mtu, at, line, self._local[1]

    def _begin(self, host: str, size: int, line: Line) -> None:
        if self._current is not None and self._current.host == host and self._current.lost is None:
            self._current.size = max(self._current.size, size)
            return
        self._current = _Ping(host, size, line)
        if len(self._found) < 1000:
            self._found.append(self._current)

    def end(self, source: str) -> None:
        self._current = None

    def signals(self) -> Iterator[Signal]:
        if self._narrow is not None:
            mtu, at, line, local = self._narrow
            yield Signal(
                "mtu-mismatch",
                Says.STRONG,
                f"the path passes packets of {mtu} bytes at {at}, less than this node's interface sends",
                [line.evidence(), local.evidence()],
                {"peer": at},
                condition=True,
                order=line.order,
            )
        lost = [ping for ping in self._found if ping.lost]
        passed = [ping for ping in self._found if ping.lost is False]
        for ping in lost:
            smaller = next((other for other in passed if other.host == ping.host and other.size < ping.size), None)
            if smaller is not None:
                yield Signal(
                    "mtu-mismatch",
                    Says.STRONG,
                    f"packets of {ping.size} bytes to {ping.host} are lost, those of {smaller.size} bytes pass",
                    [ping.line.evidence(), smaller.line.evidence()],
                    {"peer": ping.host},
                    order=ping.line.order,
                )
                return
        for ping in lost:
            if ping.size < LARGE and not any(other.host == ping.host for other in passed):
                yield Signal(
                    "bootstrap-peer-unreachable",
                    Says.STRONG,
                    f"a ping to {ping.host} is not answered",
                    [ping.line.evidence()],
                    {"peer": ping.host},
                    order=ping.line.order,
                )
                return
