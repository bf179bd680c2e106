"""NCCL's parameter files say what they seem to say, and nothing overrides them unseen.

/etc/nccl.conf and ~/.nccl.conf (or NCCL_CONF_FILE, which stands in for the latter from 2.23 on) are read at the first use of
NCCL and turned into environment variables. A variable that is set already is not replaced: the environment goes before the
user's file, the user's file before /etc/nccl.conf, and within a file the first line of a name counts.

Source: NVIDIA/nccl src/misc/param.cc (initEnv, setEnvFile).
"""

from __future__ import annotations

import posixpath
from typing import Any, Dict, Iterator, List, Optional, TypedDict

from ncdiag.host import Absent, Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, ok, skip, unknown, warn
from ncdiag.nccl import environment
from ncdiag.nccl.environment import Problem, Setting
from ncdiag.nodeset import counted

SYSTEM = "/etc/nccl.conf"


class File(TypedDict):
    """One parameter file, in NCCL's order of precedence."""

    path: str
    by: str
    """Why NCCL looks there: `NCCL_CONF_FILE`, `HOME`, `always`."""
    state: str
    """`read`, `absent`, `unreadable`, or `unsought`: a recording does not say."""
    reason: Optional[str]
    lines: List[Dict[str, Any]]
    """`line`, `name`, `value` of every line that NCCL takes."""


class Facts(TypedDict):
    files: List[File]


def collect(host: Host) -> Facts:
    try:
        environ = host.environ()
    except HostError:
        environ = {}
    root = "/proc/%d/root" % host.pid if host.pid is not None and not host.recorded else ""
    files = []
    if environ.get("NCCL_CONF_FILE"):
        files.append(_read(host, root, environ["NCCL_CONF_FILE"], "NCCL_CONF_FILE"))
    elif environ.get("HOME"):
        files.append(_read(host, root, posixpath.join(environ["HOME"], ".nccl.conf"), "HOME"))
    return {"files": [*files, _read(host, root, SYSTEM, "always")]}


def _read(host: Host, root: str, path: str, by: str) -> File:
    try:
        return {
            "path": path,
            "by": by,
            "state": "read",
            "reason": None,
            "lines": environment.parse_conf(host.read(root + path)),
        }
    except Absent as error:
        state = "absent" if host.sought(root + path) else "unsought"
        return {"path": path, "by": by, "state": state, "reason": str(error), "lines": []}
    except HostError as error:
        return {"path": path, "by": by, "state": "unreadable", "reason": str(error), "lines": []}


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        environ = (snapshot.facts(node, "nccl-environment") or {}).get("environ") or {}
        seen = {name: Setting(value, "the environment") for name, value in environ.items()}
        for file in facts["files"]:
            yield from _judge_file(node, file, seen)


def _judge_file(node: str, file: File, seen: Dict[str, Setting]) -> Iterator[Finding]:
    path = file["path"]
    if file["state"] == "unreadable":
        yield unknown(
            "%s cannot be read (%s); what it sets is not known" % (path, file["reason"]),
            node,
            source=path,
            remedy="run ncdiag as the user that starts the engine, or as root",
        )
    elif file["state"] == "absent" and file["by"] == "NCCL_CONF_FILE":
        yield warn(
            "NCCL_CONF_FILE names %s, which is not there: NCCL reads no user file at all" % path,
            node,
            source="environment",
            observed=file["reason"],
            expected="a file that exists",
            cause="env-unknown-or-invalid",
            remedy="correct NCCL_CONF_FILE, or unset it so that ~/.nccl.conf counts",
        )
    elif file["state"] == "unsought":
        yield unknown("whether %s exists was not recorded" % path, node, source=path)
    elif file["state"] == "absent":
        yield skip("there is no %s" % path, node, source=path)
    else:
        found = [finding for line in file["lines"] for finding in _judge_line(node, path, line, seen)]
        yield from found
        if not found:
            yield ok(
                "%s sets %s" % (path, counted(len(file["lines"]), "variable")),
                node,
                source=path,
                observed={line["name"]: line["value"] for line in file["lines"]},
            )


def _judge_line(node: str, path: str, line: Dict[str, Any], seen: Dict[str, Setting]) -> Iterator[Finding]:
    name, value, where = line["name"], line["value"], "%s line %d" % (path, line["line"])
    problem = _form(name, value)
    if problem is None and environment.LOOKS_LIKE_NCCL.match(name):
        problem = environment.name_problem(name) or environment.value_problem(name, value)
    if problem is not None and problem.kind != "noted":
        yield warn(
            "%s: %s" % (where, problem.summary),
            node,
            source=where,
            observed="%s=%s" % (name, value),
            expected=problem.expected,
            cause="env-unknown-or-invalid",
            remedy="edit %s: %s" % (where, problem.remedy),
            setting=name,
        )
    elif name in seen and seen[name].value != value:
        before = seen[name]
        yield warn(
            "%s sets %s=%s, but %s set it to %s before and counts" % (where, name, value, before.origin, before.value),
            node,
            source=where,
            observed="%s=%s" % (name, value),
            expected="one place that sets it",
            cause="env-unknown-or-invalid",
            remedy="take %s out of %s, or out of %s" % (name, where, before.origin),
            setting=name,
        )
    seen.setdefault(name, Setting(value, where))


def _form(name: str, value: str) -> Optional[Problem]:
    """Mistakes of people who take the file for a shell script."""
    if name != name.strip() or " " in name.strip():
        return Problem(
            name,
            "value",
            "the name is %r, blanks and all: NCCL cuts none" % name,
            "NAME=VALUE without blanks",
            "%s=%s" % (name.split()[-1] if name.split() else "NAME", value.strip()),
        )
    if value[:1] in "\"'" and value[:1]:
        return Problem(
            name,
            "value",
            "the quotes belong to the value %s: NCCL takes none off" % value,
            "NAME=VALUE without quotes",
            "%s=%s" % (name, value.strip("\"'")),
        )
    if " #" in value or value != value.strip():
        return Problem(
            name,
            "value",
            "the value is %r with all that follows the sign: NCCL knows no comments behind it" % value,
            "NAME=VALUE and nothing else",
            "%s=%s" % (name, value.partition(" #")[0].strip()),
        )
    return None


PROBE = Probe("nccl-conf-files", "NCCL's parameter files are read as they look", judge, collect)
