"""Writes what a node read as one captured tree, which `Recorded` replays elsewhere."""

from __future__ import annotations

import errno
import io
import json
import os
import posixpath
import tarfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from ncdiag import redact
from ncdiag.host import DEFAULT_LIMIT, Host, HostError, Output, Space, Stat, TooLarge, mask
from ncdiag.tree import MemoryTree

MAX_ABSENT = 20_000
"""Paths that were looked for in vain, of which a recording keeps that they were."""


class Recorder(Host):
    """A live Host that remembers, masked, everything read through it."""

    def __init__(self, live: Host) -> None:
        super().__init__(python=live.python, pid=live.pid, model=live.model)
        self._live = live
        self._tree = MemoryTree()
        self._meta: dict[str, Any] = {
            "node": live.node,
            "pid": live.pid,
            "python": live.python,
            "model": live.model,
            "errors": {},
            "commands": {},
            "exits": {},
            "answers": {},
            "stat": {},
            "space": {},
            "listed": {},
            "absent": set(),
        }
        self._lock = threading.Lock()
        self._places: dict[str, str] = {}

    @property
    def node(self) -> str:
        return self._live.node

    def _place(self, path: str) -> str:
        """The real place of `path`, with the links on the way put into the tree."""
        folder, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            return self._resolve("/", path)
        if folder not in self._places:
            self._places[folder] = self._resolve("/", folder)
        return self._resolve(self._places[folder], name)

    def _resolve(self, done: str, path: str) -> str:
        todo = [part for part in path.split("/") if part not in ("", ".")][::-1]
        for _ in range(400):
            if not todo:
                break
            part = todo.pop()
            if part == "..":
                done = posixpath.dirname(done)
                continue
            here = posixpath.join(done, part)
            try:
                target = os.readlink(here)
            except OSError:
                done = here
                continue
            if here not in self._tree.links:
                self._tree.add_link(here, target)
            done = "/" if target.startswith("/") else done
            todo.extend([piece for piece in target.split("/") if piece not in ("", ".")][::-1])
        return done

    def _note_error(self, path: str, error: HostError) -> None:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            if len(self._meta["absent"]) < MAX_ABSENT:
                self._meta["absent"] |= {path, self._place(path)}
        elif error.errno:
            place = self._place(path)
            self._meta["errors"][place] = error.errno
            if place not in self._tree.folders and place not in self._tree.files:
                self._tree.add_file(place, b"")

    def read_bytes(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        try:
            content = self._live.read_bytes(path, limit)
        except TooLarge as error:
            self._remember_content(path, error.content)
            raise
        except HostError as error:
            with self._lock:
                self._note_error(path, error)
            raise
        self._remember_content(path, content)
        return content

    def _remember_content(self, path: str, content: bytes) -> None:
        masked = mask(path, content.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        with self._lock:
            place = self._place(path)
            if len(masked) > len(self._tree.files.get(place, b"")) or place not in self._tree.files:
                self._tree.add_file(place, masked)

    def list(self, path: str) -> list[str]:
        try:
            names = self._live.list(path)
        except HostError as error:
            with self._lock:
                self._note_error(path, error)
            raise
        with self._lock:
            place = self._place(path)
            self._tree.add_folder(place)
            self._meta["listed"][place] = names
            for name in names:
                self._remember_name(posixpath.join(place, name))
        return names

    def _remember_name(self, path: str) -> None:
        if path in self._tree.files or path in self._tree.links or path in self._tree.folders:
            return
        try:
            if os.path.islink(path):
                self._tree.add_link(path, os.readlink(path))
            elif os.path.isdir(path):
                self._tree.add_folder(path)
        except (
            OSError
        ):  # a link of another user's process, one that ended meanwhile: the name is kept, as it was listed
            pass

    def link(self, path: str) -> str:
        target = self._live.link(path)
        with self._lock:
            self._tree.add_link(posixpath.join(self._place(posixpath.dirname(path)), posixpath.basename(path)), target)
        return target

    def real(self, path: str) -> str:
        real = self._live.real(path)
        with self._lock:
            place = self._place(path)
            if place not in self._tree.files:
                self._tree.add_folder(place)
        return real

    def stat(self, path: str) -> Stat:
        return self._remembered("stat", path, lambda: self._live.stat(path))

    def space(self, path: str) -> Space:
        return self._remembered("space", path, lambda: self._live.space(path))

    def _remembered(self, kind: str, path: str, question: Callable[[], Any]) -> Any:
        try:
            answer = question()
        except HostError as error:
            self._meta[kind][path] = error.errno or errno.EIO
            raise
        self._meta[kind][path] = asdict(answer)
        return answer

    def run(self, argv: Sequence[str], timeout_s: float = 5.0, limit: int = 4 << 20) -> Output:
        name = redact.text("-".join(argv))[:80].replace("/", "_")
        try:
            output = self._live.run(argv, timeout_s, limit)
        except HostError as error:
            with self._lock:
                if error.errno == errno.ENOENT:
                    self._meta["commands"][name], self._meta["exits"][name] = " ".join(argv), 127
                    self._tree.add_file("/cmd/" + name, b"")
            raise
        with self._lock:
            self._meta["commands"][name], self._meta["exits"][name] = " ".join(argv), output.rc
            self._tree.add_file("/cmd/" + name, (output.out or output.err).encode("utf-8", "surrogateescape"))
        return output

    def environ(self) -> dict[str, str]:
        self._meta["environ"] = self._live.environ()
        return self._meta["environ"]

    def ask(self, name: str, question: Callable[[], Any]) -> Any:
        try:
            answer = self._live.ask(name, question)
        except HostError as error:
            self._meta["answers"][name] = {"errno": error.errno, "reason": redact.text(error.reason)}
            raise
        self._meta["answers"][name] = redact.data(answer)
        return answer

    def save(self, path: str) -> None:
        """Write the tree: a `.tar.gz` file (mode 0600) or a folder (mode 0700). Raises OSError."""
        self._meta.setdefault("environ", None)
        self._meta["absent"] = sorted(self._meta["absent"])
        self._meta["listed"] = {place: self._unread(place, names) for place, names in self._meta["listed"].items()}
        self._tree.add_file("/META.json", json.dumps(self._meta, indent=1, sort_keys=True).encode())
        if path.endswith((".tar.gz", ".tgz")):
            self._save_tar(path)
        else:
            self._save_folder(path)

    def _unread(self, place: str, names: Sequence[str]) -> Sequence[str]:
        """Those of a folder's names that the tree does not hold: seen in a listing only, as device nodes and libraries are."""
        known = (self._tree.files, self._tree.links, self._tree.folders)
        return [name for name in names if not any(posixpath.join(place, name) in held for held in known)]

    def _save_tar(self, path: str) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
            for folder in sorted(self._tree.folders)[1:]:
                info = tarfile.TarInfo(folder.lstrip("/"))
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(info)
            for name, target in sorted(self._tree.links.items()):
                info = tarfile.TarInfo(name.lstrip("/"))
                info.type, info.linkname = tarfile.SYMTYPE, target
                archive.addfile(info)
            for name, content in sorted(self._tree.files.items()):
                info = tarfile.TarInfo(name.lstrip("/"))
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))

    def _save_folder(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=False)
        for folder in sorted(self._tree.folders)[1:]:
            os.makedirs(path + folder, exist_ok=True)
        for name, content in self._tree.files.items():
            descriptor = os.open(path + name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        for name, target in self._tree.links.items():
            os.symlink(target, path + name)
