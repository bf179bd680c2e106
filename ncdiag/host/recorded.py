"""A captured machine."""

from __future__ import annotations

import errno
import json
import os
import re
from typing import Any, Callable, Dict, List, Optional, Sequence

from ncdiag import redact
from ncdiag.host.answers import Output, Space, Stat, decode
from ncdiag.host.errors import Absent, TooLarge, Unreadable, error_of
from ncdiag.host.live import DEFAULT_LIMIT, Host
from ncdiag.tree import Tree

_SECTIONS = ("errors", "commands", "exits", "answers", "stat", "space", "modes", "listed")


class Recorded(Host):
    """A Host over a captured tree: a folder or tar archive that holds `sys/`, `proc/`, `cmd/` and META.json.

    Links are resolved inside the tree only. What was not recorded is Absent.
    """

    recorded = True

    def __init__(self, tree: Tree, name: Optional[str] = None) -> None:
        super().__init__()
        self._tree = tree
        self._meta = self._load_meta()
        self._name = name
        self._absent = frozenset(map(str, self._meta.get("absent", ())))
        self.pid = self._meta.get("pid")
        self.python = self._meta.get("python")
        self.model = self._meta.get("model")

    def _load_meta(self) -> Dict[str, Any]:
        """META.json; what in it has another shape than a recording's is left out, as if it had not been recorded."""
        try:
            meta = json.loads(self._tree.read("/META.json", 64 << 20).decode("utf-8", "replace"))
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(meta, dict):
            return {}
        shapes = {**dict.fromkeys(_SECTIONS, dict), "absent": list, "pid": int, "python": str, "model": str}
        return {name: value for name, value in meta.items() if isinstance(value, shapes.get(name, object))}

    @property
    def node(self) -> str:
        return str(self._meta.get("node") or self._name or "recorded")

    def read_bytes(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        try:
            real = self._tree.resolve(path)
            self._refuse(real)
            content = self._tree.read(real, limit + 1)
        except OSError as error:
            raise error_of(path, error) from None
        if len(content) > limit:
            raise TooLarge(path, limit, content)
        return content

    def _refuse(self, real: str, but: int = 0) -> None:
        """Raises the OSError that stood there when it was recorded, except the number `but`."""
        number = self._meta.get("errors", {}).get(real)
        if number and number != but:
            raise OSError(int(number), os.strerror(int(number)))

    def list(self, path: str) -> List[str]:
        try:
            real = self._tree.resolve(path)
            self._refuse(real, errno.EISDIR)
            told = self._meta.get("listed", {}).get(real, ())
            return sorted({*self._tree.list(path), *told})
        except OSError as error:
            raise error_of(path, error) from None

    def link(self, path: str) -> str:
        try:
            return self._tree.link(path)
        except OSError as error:
            raise error_of(path, error) from None

    def real(self, path: str) -> str:
        try:
            return self._tree.resolve(path)
        except OSError as error:
            raise error_of(path, error) from None

    def stat(self, path: str) -> Stat:
        told = self._answer("stat", path)
        if told is not None:
            return Stat(**told)
        try:
            kind, size = self._tree.kind(path)
        except OSError as error:
            raise error_of(path, error) from None
        mode = int(str(self._meta.get("modes", {}).get(path, "444")), 8)
        return Stat(kind, mode, 0, 0, size)

    def sought(self, path: str) -> bool:
        return path in self._meta.get("stat", {}) or path in self._absent

    def space(self, path: str) -> Space:
        told = self._answer("space", path)
        if told is None:
            raise Absent(path, "its file system's size was not recorded")
        return Space(**told)

    def run(self, argv: Sequence[str], timeout_s: float = 5.0, limit: int = 4 << 20) -> Output:
        shown = " ".join(argv)
        for name, command in self._meta.get("commands", {}).items():
            if command == shown:
                return self._output(name, shown)
        raise Absent(shown, "this command was not recorded")

    def _output(self, name: str, shown: str) -> Output:
        exits = self._meta.get("exits", {})
        try:
            content = decode(self._tree.read("/cmd/" + name, 64 << 20))
        except OSError as error:
            raise error_of(shown, error) from None
        trailer = re.search(r"^# \$ .* ; exit status (\d+)\n?\Z", content, re.M)
        rc = int(exits.get(name, trailer.group(1) if trailer else 0))
        if rc == 127:
            raise Absent(shown, "%s was not installed there" % shown.split()[0], errno.ENOENT)
        return Output(rc, redact.text(content[: trailer.start()] if trailer else content), "")

    def environ(self) -> Dict[str, str]:
        told = self._meta.get("environ")
        if not isinstance(told, dict):
            raise Absent("environment", "it was not recorded")
        return redact.environ({str(name): str(value) for name, value in told.items()})

    def ask(self, name: str, question: Callable[[], Any]) -> Any:
        answers = self._meta.get("answers", {})
        if name not in answers:
            raise Absent(name, "it was not recorded")
        answer = answers[name]
        if isinstance(answer, dict) and "errno" in answer and "reason" in answer:
            raise Unreadable(name, str(answer["reason"]), answer["errno"])
        return redact.data(answer)

    def _answer(self, kind: str, path: str) -> Optional[Dict[str, Any]]:
        told = self._meta.get(kind, {}).get(path)
        if isinstance(told, int):
            raise error_of(path, OSError(told, os.strerror(told)))
        return told
