"""The remedies ncdiag can carry out itself: first prepared (what will change, how to undo it), then applied."""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ncdiag import redact
from ncdiag.model import Finding
from ncdiag.playbook import envfile
from ncdiag.playbook.follow import settings_of
from ncdiag.playbook.schema import Action, EndProcess, Follow, ResizeShm, SetEnv, UnsetEnv

END_WAIT_S = 10.0
_SIZE = re.compile(r"^([1-9][0-9]{0,3})([mg])$")
_VALUE = re.compile(r"^[^\x00-\x1f\x7f]{0,400}$")


class Refused(Exception):
    """Why an action cannot or must not be carried out here; one sentence."""


@dataclass(frozen=True)
class Inputs:
    """What the person gave on the command line."""

    env_file: Path | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    """--value NAME=VALUE: a variable's value, SHM_SIZE, PID."""


@dataclass(frozen=True)
class Prepared:
    """An action that can be carried out now."""

    preview: str
    undo: str
    apply: Callable[[], str]
    """Does it and says what was done. Raises Refused, OSError."""


def prepare(action: Action, inputs: Inputs, probe: Callable[[str], list[Finding]]) -> Prepared:
    """Changes nothing; `probe` gives the findings of a probe. Raises Refused with the way out."""
    if isinstance(action, SetEnv):
        value = action.value if action.value is not None else inputs.values.get(action.set_env)
        if value is None:
            raise Refused(f"no value is given for {action.set_env}; add --value {action.set_env}=…")
        return _edit(inputs, {action.set_env: value})
    if isinstance(action, UnsetEnv):
        return _edit(inputs, dict.fromkeys(action.unset_env))
    if isinstance(action, Follow):
        settings = settings_of(probe(action.follow))
        if not settings:
            raise Refused(f"the probe {action.follow} advises no setting that leaves nothing open; read its findings")
        return _edit(inputs, settings)
    if isinstance(action, ResizeShm):
        return _resize(inputs.values.get("SHM_SIZE", action.resize_shm))
    return _end(action, inputs.values.get("PID"))


def _edit(inputs: Inputs, settings: Mapping[str, str | None]) -> Prepared:
    path = inputs.env_file
    names = ", ".join(settings)
    if path is None:
        raise Refused(f"no file is given in which to change {names}; add --env-file FILE")
    if not all(_VALUE.match(value or "") for value in settings.values()):
        raise Refused(f"the value for {names} holds control characters or is too long")
    try:
        old = envfile.read(path)
    except (OSError, ValueError) as error:
        raise Refused(f"cannot read {path}: {error}") from None
    new = envfile.changed(old, settings)
    if new == old:
        raise Refused(f"{path} needs no change: {names}")

    backup = envfile.backup_of(path)

    def apply() -> str:
        try:
            envfile.replace(path, old, new, backup)
        except ValueError as error:
            raise Refused(str(error)) from None
        return f"changed {path}; the old file is {backup}"

    undo = shlex.join(["mv", str(backup), os.path.realpath(path)])
    return Prepared(redact.text(envfile.difference(path, old, new)), undo, apply)


def _resize(size: str) -> Prepared:
    match = _SIZE.match(size)
    if match is None:
        raise Refused(f"SHM_SIZE={size!r} is no size such as 16g or 512m")
    wanted = int(match.group(1)) << (30 if match.group(2) == "g" else 20)
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    if not any(line.split()[1:3] == ["/dev/shm", "tmpfs"] for line in mounts):
        raise Refused("/dev/shm is no tmpfs of its own here, so its size cannot be changed from inside")
    if os.geteuid() != 0:
        raise Refused("only root can remount /dev/shm; run as root, or start the container with --shm-size")
    info = os.statvfs("/dev/shm")
    have, used = info.f_blocks * info.f_frsize, (info.f_blocks - info.f_bfree) * info.f_frsize
    if wanted <= have:
        raise Refused(f"/dev/shm has {have >> 20} MiB already, not less than the {wanted >> 20} MiB wanted")
    command = ["mount", "-o", f"remount,size={wanted}", "/dev/shm"]

    def apply() -> str:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=15, check=False
        )
        if done.returncode != 0:
            raise Refused(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
        return f"{shlex.join(command)}: /dev/shm had {have >> 20} MiB and has {wanted >> 20} MiB"

    preview = f"{shlex.join(command)}   # now {have >> 20} MiB, {used >> 20} MiB used"
    return Prepared(preview, f"mount -o remount,size={have} /dev/shm", apply)


def _end(action: EndProcess, given: str | None) -> Prepared:
    if given is None or not given.isdecimal():
        raise Refused("no process is named; add --value PID=…")
    pid = int(given)
    if pid in _ancestors():
        raise Refused(f"process {pid} is ncdiag itself or one it runs under")
    command, started = _identity(pid)
    if not any(word in command for word in action.end_process):
        raise Refused(f"process {pid} ({command}) is none of: {', '.join(action.end_process)}")

    def apply() -> str:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return f"process {pid} had ended by itself"
        try:
            if _identity(pid) != (command, started):
                raise Refused(f"process {pid} is no longer the one that was shown")
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            waiter = select.poll()
            waiter.register(handle, select.POLLIN)
            if not waiter.poll(END_WAIT_S * 1000):
                raise Refused(f"process {pid} did not end within {END_WAIT_S:g} s of SIGTERM")
        except ProcessLookupError:
            return f"process {pid} had ended by itself"
        finally:
            os.close(handle)
        return f"process {pid} ended after SIGTERM: {command}"

    return Prepared(
        f"SIGTERM to process {pid}: {command}", f"There is no undo but to start it again with {command}", apply
    )


def _ancestors() -> set[int]:
    """This process, those it runs under, and 0 and 1."""
    found, pid = {0, 1}, os.getpid()
    while pid > 1:
        found.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def _identity(pid: int) -> tuple[str, str]:
    """Masked command line and start time (clock ticks since boot). Raises Refused."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "backslashreplace").rstrip("\0").split("\0")
        started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        raise Refused(f"there is no process {pid}") from None
    if raw == [""]:
        raise Refused(f"process {pid} belongs to the kernel or has ended")
    return shlex.join(redact.argv(raw))[:500], started
