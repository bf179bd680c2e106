"""Asks NCCL's RAS service (2.24 and later) how a running job is; the JSON report, or the text one put into its shape. Travels to nodes.

The service answers plain text lines over TCP (NCCL's src/ras/client_support.cc). Every process of a user in one network namespace listens on
the same port, and any of them answers for its whole job. Reading is all that is asked: `STATUS`.
"""

from __future__ import annotations

import json
import re
import socket
from typing import Any, Mapping

from ncdiag import redact
from ncdiag.nccl import netns as namespace
from ncdiag.nccl.ras_text import parse_text

DEFAULT_ADDRESS = "localhost:28028"
"""NCCL_RAS_ADDR when it is not set."""
COLLECT_S = 2
"""Seconds that RAS may take to gather from the other processes (its own default is 5)."""
MARGIN_S = 7.0
"""What it takes on top: a second leg of 5 s for peers that do not answer, and the way."""
HELLO_S = 1.5
"""A service that lives answers a command at once. All processes of a user share the port, and a connection that the kernel gave to a stopped
one stays without an answer: then another try may meet one that lives."""
TRIES = 3
LIMIT = 64 << 20


class RasError(Exception):
    """No report; the text says why."""


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port`; the port of DEFAULT_ADDRESS where there is none. Raises RasError."""
    match = re.match(r"^(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^:\[\]]*))(?::(?P<port>\d+))?$", address.strip())
    if not match:
        raise RasError("NCCL_RAS_ADDR %r is not host:port" % address)
    host = match.group("six") or match.group("host") or "localhost"
    return ("localhost" if host in ("0.0.0.0", "::") else host), int(match.group("port") or 28028)


def ask(
    address: str = DEFAULT_ADDRESS,
    *,
    netns: str | None = None,
    collect_s: int = COLLECT_S,
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """The report of the job that listens at `address`, seen from the network namespace of the file `netns` (`/proc/PID/ns/net`).

    In the shape of RAS's JSON (`communicators` with `ranks`, `missing_ranks`), with `format` and `address` added; from a text report only
    what stands in it. Raises RasError.
    """
    deadline = timeout_s or collect_s + MARGIN_S
    if netns is None or namespace.is_ours(netns):
        report = _ask(address, collect_s, deadline)
    else:
        try:
            report = namespace.inside(netns, lambda: _ask(address, collect_s, deadline), deadline + 5)
        except OSError as error:
            raise RasError(error.strerror or str(error)) from None
    report["address"] = address
    return report


def _ask(address: str, collect_s: int, deadline: float) -> dict[str, Any]:
    head = ["CLIENT PROTOCOL 2", "TIMEOUT %d" % collect_s]
    replies, body = _converse(address, [*head, "SET FORMAT json"], "STATUS", deadline)
    if all(not reply.startswith("ERROR") for reply in replies):
        try:
            return dict(parse_json(body), format="json")
        except ValueError:
            pass
    _, body = _converse(address, head, "VERBOSE STATUS", deadline)
    return dict(parse_text(redact.text(body)), format="text")


def _converse(address: str, commands: list[str], question: str, deadline: float) -> tuple[list[str], str]:
    """A reply line to each of `commands`, then everything that `question` gives."""
    for _ in range(TRIES):
        try:
            return _once(address, commands, question, deadline)
        except _NoHello:
            continue
    raise RasError("%s takes connections and says nothing: its process is stopped, or no NCCL RAS service" % address)


class _NoHello(Exception):
    """Connected, and no answer to the first command."""


def _once(address: str, commands: list[str], question: str, deadline: float) -> tuple[list[str], str]:
    """One connection."""
    host, port = split_address(address)
    replies: list[str] = []
    try:
        with socket.create_connection((host, port), min(deadline, 3.0)) as link:
            link.settimeout(min(deadline, HELLO_S))
            with link.makefile("rb") as stream:
                for command in commands:
                    link.sendall(command.encode() + b"\n")
                    replies.append(stream.readline(4096).decode("utf-8", "replace").strip())
                    if not replies[-1]:
                        raise RasError("%s closed the connection: not an NCCL RAS service" % address)
                if not replies[0].startswith(("SERVER PROTOCOL", "ERROR")):
                    raise RasError("%s answers %r: not an NCCL RAS service" % (address, replies[0][:60]))
                link.settimeout(deadline)
                link.sendall(question.encode() + b"\n")
                return replies, stream.read(LIMIT).decode("utf-8", "replace")
    except socket.timeout:
        if not replies:
            raise _NoHello from None
        raise RasError("%s: no report within %g s" % (address, deadline)) from None
    except OSError as error:
        raise RasError("%s: %s" % (address, error.strerror or error)) from None


_NO_COMMA = re.compile(r'("nvml_dev"\s*:\s*-?\d+)(\s*"status")')


def parse_json(text: str) -> dict[str, Any]:
    """The JSON report; 2.28 leaves out a comma after a missing rank's `nvml_dev`, which is put in. Raises ValueError."""
    data = json.loads(_NO_COMMA.sub(r"\1,\2", text))
    if not isinstance(data, dict) or not isinstance(data.get("communicators"), list):
        raise ValueError("no RAS report: it has no communicators")
    result = redact.data(data)
    return dict(result)


def counts(report: Mapping[str, Any]) -> dict[tuple[str, int], dict[str, int]]:
    """(communicator hash, rank) -> operations launched by name."""
    return {
        (str(communicator.get("hash")), rank["rank"]): dict(rank.get("collective_counts") or {})
        for communicator in report.get("communicators", ())
        for rank in communicator.get("ranks", ())
    }


def moved(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether any rank launched an operation between two reports: a job that works, where a difference of counts proves nothing.

    Every communicator of `second` is given `moved` of its own: one may stand still while another works.
    """
    before, after = counts(first), counts(second)
    changed = {key[0] for key in before.keys() & after.keys() if before[key] != after[key]}
    for communicator in second.get("communicators", ()):
        communicator["moved"] = str(communicator.get("hash")) in changed
    return bool(changed)
