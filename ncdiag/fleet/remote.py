"""What every way to a remote node shares: the command that is run there, and what its output means.

The payload goes in through standard input and is never a file with a name: the loader puts it into anonymous memory, so that
nothing is left on the node, however it ends. When nobody reads its output any more (Ctrl-C here, a broken connection), it ends at once.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence, Set
from typing import NamedTuple

from ncdiag import payload
from ncdiag.fleet import clock
from ncdiag.fleet.base import Fleet, Progress, Request
from ncdiag.fleet.clock import Stamp
from ncdiag.model import NodeFacts

NO_PYTHON = 97
"""Exit status of the remote command when no interpreter is new enough."""

_LOADER = """
import os, select, sys, threading, time
def leash():
    output = select.poll()
    output.register(1, 0)
    output.poll()
    os._exit(1)
threading.Thread(target=leash, daemon=True).start()
sys.stdout.write("\\nncdiag-clock %.6f\\n" % time.time())
sys.stdout.flush()
data = sys.stdin.buffer.read(SIZE)
try:
    fd = os.memfd_create("ncdiag", 0)
except (AttributeError, OSError):
    import tempfile
    keep = tempfile.TemporaryFile()
    fd = keep.fileno()
while data:
    data = data[os.write(fd, data):]
path = "/proc/self/fd/%d" % fd
sys.path.insert(0, path)
import runpy
runpy.run_path(path, run_name="__main__")
"""


def loader(size: int = -1) -> str:
    """The program that takes the payload in. `size`: its length, where standard input cannot be closed; -1: up to the end."""
    return _LOADER.replace("SIZE", str(size))


INTERPRETERS = (
    "python3",
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    *(f"python3.{minor}" for minor in range(14, 7, -1)),
    "/opt/conda/bin/python3",
    "/opt/venv/bin/python3",
)
"""Tried in this order; the first that is 3.8 or newer runs."""

_PICK = """
seen=
for python in {interpreters}; do
    version=$("$python" -S -I -c 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 8))' 2>/dev/null) \
        && exec "$python" -S -I -c {loader}
    [ -n "$version" ] && seen="$seen $python=$version"
done
echo "ncdiag-no-python$seen" >&2
exit {no_python}
"""


def script(size: int = -1) -> str:
    """What `sh -c` is given: picks an interpreter, which runs the loader."""
    return _PICK.format(interpreters=" ".join(INTERPRETERS), loader=shlex.quote(loader(size)), no_python=NO_PYTHON)


def command() -> str:
    """One shell word list that any POSIX shell can be given."""
    return "sh -c " + shlex.quote(script())


def pack(request: Request) -> bytes:
    """What goes into the command's standard input."""
    return payload.pack(
        request.folders,
        {
            "probes": [probe.id for probe in request.probes],
            "python": request.python,
            "pid": request.pid,
            "environment": request.environment,
            "model": request.model,
            "budget_s": max(1.0, request.node_timeout_s - 5.0),
        },
    )


class Answer(NamedTuple):
    """What one node said to the command."""

    rc: int | None
    """Exit status; None when its time was up."""
    out: str
    err: str
    clock: Stamp | None = None
    """Its clock against ours, where it was told."""


class RemoteFleet(Fleet):
    """A fleet on whose nodes the command is run."""

    def run(
        self,
        packed: bytes,
        timeout_s: float,
        progress: Progress,
        *,
        only: Set[str] | None = None,
        together: bool = False,
    ) -> dict[str, Answer]:
        """Runs a packed payload on every node, or on `only` some. `together`: on all at the same time, however many there are."""
        raise NotImplementedError

    def collect(self, request: Request, progress: Progress) -> list[NodeFacts]:
        answers = self.run(pack(request), request.node_timeout_s, progress)
        return [outcome(node, answer, request.node_timeout_s) for node, answer in answers.items()]


def outcome(node: str, answer: Answer, timeout_s: float) -> NodeFacts:
    """The facts in what the command printed, else why there are none."""
    try:
        facts = NodeFacts(**json.loads(payload.unwrap("\n" + answer.out)))
        if not all(isinstance(part, dict) for part in (facts.facts, facts.errors, facts.meta)):
            raise ValueError("its output holds no facts")
    except (ValueError, TypeError) as error:
        damage = str(error) if type(error) is ValueError else "its output holds no facts"
        return NodeFacts(node, unreachable=reason(answer, damage, timeout_s))
    facts.node = node
    if answer.clock is not None:
        facts.meta["clock"] = answer.clock.as_meta()
    return facts


_BANNER = "timed out during banner exchange"
_NOBODY = "UNKNOWN port 65535"
"""OpenSSH's name for the other end of a ProxyCommand or a jump host. Source: OpenSSH, packet.c, ssh_remote_ipaddr."""

_NO_REASON = (_NOBODY, "kex_exchange_identification:", "stdio forwarding failed", "Warning: Permanently added")
"""Lines that only say that a connection has ended."""


def said(lines: Sequence[str]) -> str:
    """The line of ssh that tells the reason: the last, but for its words on an end that it has no name for. Empty where there is none."""
    through = any(_NOBODY in line for line in lines)
    if any(_BANNER in line for line in lines):
        where = "at the end of the way there (its port, ProxyCommand or jump host)"
        if through:
            where = "through its ProxyCommand or jump host"
        elif any(line.startswith("Connection to ") for line in lines):
            where = "on the port that took the connection"
        return f"no SSH server spoke {where} (ssh: Connection {_BANNER})"
    told = [line for line in lines if not any(words in line for words in _NO_REASON)]
    if told or not through:
        return (told or lines or [""])[-1][:300]
    return f"its ProxyCommand or jump host ended the connection (ssh: {lines[-1][:200]})"


def reason(answer: Answer, damage: str, timeout_s: float) -> str:
    """Why the answer is none, in a sentence. `damage`: what is wrong with its output."""
    rc = answer.rc
    last = said([line.strip() for line in answer.err.splitlines() if line.strip()])
    if rc is None:
        return f"no answer within {timeout_s:g} s" + (f" ({last})" if last else "")
    if rc == NO_PYTHON:
        found = last.partition("ncdiag-no-python")[2].strip()
        return "no Python 3.8 or newer there" + (f"; there is {found}" if found else ", and no other")
    if rc == 255:
        return last or "the connection failed without a word"
    if rc != 0:
        printed = "" if last else _printed(answer.out)
        who = "the login" if printed else "the collector"
        return f"{who} ended with status {rc}" + (f": {last}" if last else "") + printed
    return damage + (f" ({last})" if last else _printed(answer.out))


def _printed(out: str) -> str:
    """What the login, a login script or a forced command prints in the collector's place, to be known by; empty where the collector ran."""
    lines = [line.strip() for line in out.splitlines() if line.strip()]
    if not lines or any(line.startswith((clock.MARK.decode(), payload.BEGIN)) for line in lines):
        return ""
    return f"; it printed {lines[0][:60]!r}: a login shell, a login script or a forced command runs in place of what it was asked to"
