"""Bundles: everything that a hang dump read, redacted, as a folder or one archive; and back. What was concluded is in it only to be read.

Layout: META.json, states.json, ras.json, flight.json, verdict.json, logs/N.log with their names in META.json. All files have mode 0600.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Mapping
from typing import Any

from ncdiag import redact
from ncdiag.hang.content import DumpContent
from ncdiag.model import SCHEMA, RankState
from ncdiag.shapes import fault

ARCHIVES = (".tar.gz", ".tgz", ".tar.zst")
MAX_BYTES = 512 << 20
MAX_FILES = 10_000
KIND = "hang-dump"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

BundleContent = DumpContent


class BundleError(Exception):
    """No bundle, or it cannot be written; one sentence with the way out."""


def files_of(content: DumpContent) -> dict[str, bytes]:
    """Name in the bundle -> its redacted content."""
    logs = {f"logs/{number}.log": (name, lines) for number, (name, lines) in enumerate(sorted(content.logs.items()))}
    meta = {
        "schema": SCHEMA,
        "kind": KIND,
        **content.meta,
        "notes": content.notes,
        "logs": {file: name for file, (name, _) in logs.items()},
    }
    plain: dict[str, Any] = {
        "META.json": meta,
        "states.json": [state.as_dict() for state in content.states],
        "ras.json": content.ras,
        "flight.json": {str(rank): dump for rank, dump in content.flight.items()},
        "verdict.json": content.verdict().as_dict(),
    }
    files = {name: json.dumps(redact.data(value), indent=1).encode() for name, value in plain.items()}
    for file, (_, lines) in logs.items():
        files[file] = redact.text("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")
    return files


def save(path: str, content: DumpContent) -> None:
    """Writes a folder (mode 0700), or an archive (mode 0600) where the name ends in .tar.gz or .tar.zst. Raises BundleError."""
    files = files_of(content)
    try:
        if path.endswith(ARCHIVES):
            _save_archive(path, files)
        else:
            _save_folder(path, files)
    except OSError as error:
        raise BundleError(f"cannot write {path}: {error.strerror}") from None


def _save_folder(path: str, files: Mapping[str, bytes]) -> None:
    if os.path.lexists(path):
        raise BundleError(f"{path} is there already; name a new folder, or a file ending in .tar.gz")
    os.makedirs(path, mode=0o700)
    for name, raw in files.items():
        os.makedirs(os.path.dirname(os.path.join(path, name)), mode=0o700, exist_ok=True)
        descriptor = os.open(os.path.join(path, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)


def _save_archive(path: str, files: Mapping[str, bytes]) -> None:
    buffer = io.BytesIO()
    top = os.path.basename(path).split(".tar")[0].removesuffix(".tgz") or "bundle"
    with tarfile.open(fileobj=buffer, mode="w" if path.endswith(".zst") else "w:gz") as archive:
        for name, raw in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size, member.mode = len(raw), 0o600
            archive.addfile(member, io.BytesIO(raw))
    packed = _zstd(["-q", "-c"], buffer.getvalue(), path) if path.endswith(".zst") else buffer.getvalue()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(packed)


def _zstd(options: list[str], raw: bytes, path: str) -> bytes:
    program = shutil.which("zstd")
    if program is None:
        raise BundleError(f"{path}: the program zstd is not installed; name it .tar.gz, or install zstd")
    try:
        done = subprocess.run([program, *options], input=raw, capture_output=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BundleError(f"{path}: zstd: {error}") from None
    if done.returncode:
        raise BundleError(f"{path}: zstd: {done.stderr.decode('utf-8', 'replace').strip()}")
    return done.stdout


def load(path: str) -> BundleContent:
    """What a bundle holds. Raises BundleError."""
    content = find(path)
    if content is None:
        raise BundleError(
            f'{path}: no bundle of ncdiag hang-dump (its META.json is missing or has no "kind": "{KIND}")'
        )
    return content


def find(path: str) -> BundleContent | None:
    """What a bundle holds; None for anything else. Raises BundleError for a damaged bundle."""
    files = _files(path)
    if files is None or _json(path, files, "META.json", dict).get("kind") != KIND:
        return None
    meta = _json(path, files, "META.json", dict)
    if meta.pop("schema", None) != SCHEMA or meta.pop("kind") != KIND:
        raise BundleError(f"{path}: a bundle of another schema; this ncdiag reads {SCHEMA}")
    names = meta.pop("logs", {})
    names = names if isinstance(names, dict) else {}
    logs = {
        str(names.get(file, file)): raw.decode("utf-8", "backslashreplace").splitlines()
        for file, raw in files.items()
        if file.startswith("logs/")
    }
    try:
        states = [_state(state) for state in _json(path, files, "states.json", list)]
        flight = {int(rank): dict(dump) for rank, dump in _json(path, files, "flight.json", dict).items()}
    except (ValueError, TypeError) as error:
        raise BundleError(f"{path}: {error}") from None
    content = BundleContent(states, _json(path, files, "ras.json", list), flight, logs, [], meta)
    try:
        content.notes += map(str, meta.pop("notes", ()))
        content.conclude()
    except Exception as error:  # the fence of a file: what no type declares may be anything
        raise BundleError(f"{path}: it holds what ncdiag does not write ({type(error).__name__}: {error})") from None
    return content


def _state(data: Any) -> RankState:
    """Raises ValueError where it is no rank state."""
    state = RankState.from_dict(data)
    wrong = fault(state) or next(
        (found for thread in state.threads for frame in thread["frames"] if (found := fault(frame))), None
    )
    if wrong:
        raise ValueError(f"states.json is damaged ({wrong})")
    return state


def _files(path: str) -> dict[str, bytes] | None:
    """The files of a folder or archive that begins with META.json, else None."""
    try:
        if os.path.isdir(path):
            return _read_folder(path) if os.path.isfile(os.path.join(path, "META.json")) else None
        with open(path, "rb") as file:
            magic = file.read(4)
            if magic != ZSTD_MAGIC:
                return _read_archive(path, tarfile.open(path, "r:*"))
            raw = magic + file.read(MAX_BYTES)
        return _read_archive(path, tarfile.open(fileobj=io.BytesIO(_zstd(["-d", "-q", "-c"], raw, path)), mode="r:"))
    except (tarfile.TarError, EOFError, zlib.error):
        return None
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror or error}") from None


def _json(path: str, files: Mapping[str, bytes], name: str, kind: type) -> Any:
    try:
        data = json.loads(files[name])
    except KeyError:
        raise BundleError(f"{path}: no bundle (it has no {name})") from None
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path}: {name} is damaged ({error})") from None
    if not isinstance(data, kind):
        raise BundleError(f"{path}: {name} is damaged (no {kind.__name__})")
    return data


def _read_folder(path: str) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            full = os.path.join(folder, name)
            if os.path.islink(full) or not os.path.isfile(full):
                continue
            total += os.path.getsize(full)
            if total > MAX_BYTES or len(files) >= MAX_FILES:
                raise BundleError(f"{path}: more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB")
            with open(full, "rb") as file:
                files[os.path.relpath(full, path)] = file.read()
    return files


def _read_archive(path: str, archive: tarfile.TarFile) -> dict[str, bytes] | None:
    """Regular files without their one top folder; read in memory, so that no name can lead anywhere. None where META.json is not the first."""
    files: dict[str, bytes] = {}
    total = 0
    with archive:
        for member in archive:
            if not member.isreg():
                continue
            name = member.name.partition("/")[2] or member.name
            if not files and name != "META.json":
                return None
            total += member.size
            if total > MAX_BYTES or len(files) >= MAX_FILES:
                raise BundleError(f"{path}: more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB unpacked")
            content = archive.extractfile(member)
            files[name] = content.read() if content is not None else b""
    return files or None
