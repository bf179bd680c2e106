"""Where pasted output was asked for: a shell's prompt with a host's name, a heading with it, or the name in front of the line as pdsh and clush print it."""

from __future__ import annotations

import re
from typing import NamedTuple

from ncdiag.logs.model import Line

_NAME = r"[A-Za-z][\w-]{0,62}(?:\.[\w-]{1,62}){0,5}"
_ASKED = re.compile(
    rf"\[?(?:[\w.-]{{1,40}}@)?(?P<host>{_NAME})(?:[: ][^\s\]$#]{{0,80}})?\]? ?[$#] (?P<command>\S.*)"  # a prompt
    rf"|(?:=+|-{{2,}}|\#+|>{{2,}}) ?(?P<host2>{_NAME})(?:: (?P<command2>\S.*)|[ =-]*)$"  # a heading
    rf"|[$#] (?:ssh (?:-[pilo] \S+ |-\S+ )*|(?:kubectl|oc|docker|podman)(?: -n \S+)? exec (?:(?:-[ncuwe]|--\w+) \S+ |-\S+ )*)(?P<host3>{_NAME}) (?:-- )?(?P<command3>\S.*)"
)
_FRONT = re.compile(rf"({_NAME}): ")


class Asked(NamedTuple):
    host: str
    command: str
    """"" for a heading that names the host only."""


def asked(text: str) -> Asked | None:
    """Host and command of a line that says where what follows was asked for; None for any other line."""
    match = _ASKED.match(text)
    if match is None:
        return None
    host, command = (
        next((match[key + n] for n in ("", "2", "3") if match[key + n]), "") for key in ("host", "command")
    )
    return Asked(host, command)


def fronted(line: Line) -> tuple[str, str]:
    """The host in front of a line, "" where none is, and the rest."""
    before = _FRONT.match(line.before)
    match = _FRONT.match(line.text) if before is None else None
    if match is not None:
        return match[1], line.text[match.end() :]
    return before[1] if before else "", line.text
