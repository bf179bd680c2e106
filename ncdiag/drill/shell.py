"""Ways into a lab's hosts by hand: a shell, a script that starts the engine, and the commands to type outside."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from . import engines, rays, remains
from .bench import ROOT, Bench

_SSH_COMMANDS = ("PREFLIGHT", "BRINGUP", "REACH", "ENV", "BANDWIDTH", "COLLECT")
"""Commands of ncdiag whose --ssh-config is set in such a shell."""


def program() -> str:
    """How ncdiag was called, so that it can be typed again."""
    if shutil.which("ncdiag"):
        return "ncdiag"
    if os.path.basename(sys.argv[0]) == "ncdiag":
        return os.path.abspath(sys.argv[0])
    return f"{sys.executable} -m ncdiag"


def write(made: Bench) -> None:
    """What a shell on each host begins with: a prompt that names it, the engine's programs, and `ncdiag` and `ssh` that work there."""
    config = made.ssh.config
    variables = {f"NCDIAG_{command}_SSH_CONFIG": str(config) for command in _SSH_COMMANDS}
    variables |= rays.ENVIRONMENT if made.shape == "ray" else {}
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    for name in made.hosts.hosts:
        _rc(made.hosts.folder, name).write_text(
            f"unset BASH_ENV\ncd {made.hosts.folder}\nPS1='[drill {name}] \\$ '\n{exports}"
            f"export PATH={shlex.quote(str(Path(engines.python()).parent))}:$PATH\n"
            f'ncdiag() {{ PYTHONPATH={shlex.quote(str(ROOT))} {shlex.quote(sys.executable)} -m ncdiag "$@"; }}\n'
            f'ssh() {{ command ssh -F {config} "$@"; }}\nexport -f ncdiag ssh\n'
        )


def _rc(folder: Path, name: str) -> Path:
    return folder / f"{name}.rc"


def start_script(made: Bench, host: str) -> Path:
    """A script that starts the engine's command of `host` in the foreground, as the host is now."""
    path = made.hosts.folder / f"start-{host}"
    variables = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in made.environment(host).items())
    path.write_text(f"#!/bin/sh\n{variables}exec {shlex.join(made.command(host))}\n")
    path.chmod(0o755)
    return path


def enter_argv(record: remains.Record, host: str) -> list[str]:
    """The command that gives a shell on a host, for any terminal of this machine."""
    place = record.hosts[host]
    return [
        "nsenter",
        f"--net=/var/run/netns/{place['netns']}",
        f"--uts=/proc/{place['holder']}/ns/uts",
        f"--mount=/proc/{place['holder']}/ns/mnt",
        "bash",
        "--rcfile",
        str(_rc(Path(record.folder), host)),
    ]


def running() -> list[remains.Record]:
    """Labs that somebody may want to enter, oldest first."""
    return [record for record in remains.records() if record.owned and record.title]


def enter_words(record: remains.Record, host: str) -> str:
    """What is typed to get a shell on a host; with the lab's name where it is not the only one."""
    alone = all(other.prefix == record.prefix for other in running())
    return f"{program()} drill --enter {host if alone else f'{record.prefix}:{host}'}"


def where(word: str) -> tuple[remains.Record, str]:
    """`a`, or `PREFIX:a` where several labs run. Raises LookupError with what to type instead."""
    prefix, _, host = word.rpartition(":")
    found = [record for record in running() if record.prefix.startswith(prefix)]
    if not found:
        raise LookupError(f"no drill runs here; start one in another terminal: {program()} drill")
    holding = [record for record in found if host in record.hosts]
    if not holding:
        raise LookupError(f"there is no host {host!r}; there are: {', '.join(found[-1].hosts)}")
    if len(holding) > 1:
        names = " or ".join(f"{record.prefix}:{host}" for record in holding)
        raise LookupError(f"{len(holding)} drills run here; say which one: --enter {names}")
    return holding[0], host


def enter(word: str) -> NoReturn:
    """Becomes a shell on the host. Raises LookupError."""
    record, host = where(word)
    environment: Mapping[str, str] = {**os.environ, "BASH_ENV": str(_rc(Path(record.folder), host))}
    os.execvpe("nsenter", enter_argv(record, host), environment)
