"""A captured file tree, as a folder or held in memory; links never lead out of it. Travels to nodes."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
import tarfile
from typing import Dict, List, NoReturn, Optional, Tuple

MAX_LINKS = 40
MAX_ENTRIES = 400_000
MAX_BYTES = 512 << 20


def _raise(number: int, path: str) -> NoReturn:
    raise OSError(number, os.strerror(number), path)


class Tree:
    """Paths are absolute inside the tree: `/sys/class/net`."""

    def kind(self, path: str) -> Tuple[str, int]:
        """`("file"|"folder"|"link", size)` of the last component, not followed. Raises OSError."""
        parent, name = posixpath.split(posixpath.normpath("/" + path.lstrip("/")))
        if not name:
            return "folder", 0
        return self._lstat(posixpath.join(self.resolve(parent), name))

    def resolve(self, path: str) -> str:
        """The path without links in it. Raises OSError: ENOENT, ENOTDIR, ELOOP."""
        done, todo, links = "/", [part for part in path.split("/") if part not in ("", ".")][::-1], 0
        while todo:
            part = todo.pop()
            if part == "..":
                done = posixpath.dirname(done)
                continue
            here = posixpath.join(done, part)
            kind, _ = self._lstat(here)
            if kind != "link":
                done = here
                continue
            links += 1
            if links > MAX_LINKS:
                _raise(errno.ELOOP, path)
            target = self._readlink(here)
            if target.startswith("/"):
                done = "/"
            todo.extend([piece for piece in target.split("/") if piece not in ("", ".")][::-1])
        return done

    def read(self, path: str, limit: int) -> bytes:
        """At most `limit` bytes of a file."""
        return self._content(self.resolve(path), limit)

    def list(self, path: str) -> List[str]:
        return sorted(self._children(self.resolve(path)))

    def link(self, path: str) -> str:
        parent, name = posixpath.split(posixpath.normpath("/" + path.lstrip("/")))
        here = posixpath.join(self.resolve(parent), name)
        if self._lstat(here)[0] != "link":
            _raise(errno.EINVAL, path)
        return self._readlink(here)

    def _lstat(self, path: str) -> Tuple[str, int]:
        raise NotImplementedError

    def _readlink(self, path: str) -> str:
        raise NotImplementedError

    def _content(self, path: str, limit: int) -> bytes:
        raise NotImplementedError

    def _children(self, path: str) -> List[str]:
        raise NotImplementedError


class FolderTree(Tree):
    """A tree that lies unpacked in a folder."""

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)

    def _at(self, path: str) -> str:
        return self._root + path if path != "/" else self._root

    def _lstat(self, path: str) -> Tuple[str, int]:
        found = os.lstat(self._at(path))
        if stat.S_ISLNK(found.st_mode):
            return "link", 0
        return ("folder" if stat.S_ISDIR(found.st_mode) else "file"), found.st_size

    def _readlink(self, path: str) -> str:
        return os.readlink(self._at(path))

    def _content(self, path: str, limit: int) -> bytes:
        descriptor = os.open(self._at(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(limit)

    def _children(self, path: str) -> List[str]:
        return os.listdir(self._at(path))


class MemoryTree(Tree):
    """A tree held in memory: of a tar archive, or put together piece by piece."""

    def __init__(self) -> None:
        self.files: Dict[str, bytes] = {}
        self.links: Dict[str, str] = {}
        self.folders: Dict[str, Dict[str, None]] = {"/": {}}

    def add_folder(self, path: str) -> None:
        if path in self.folders:
            return
        self._add_name(path)
        self.folders[path] = {}

    def _add_name(self, path: str) -> None:
        parent, name = posixpath.split(path)
        self.add_folder(parent)
        self.folders[parent][name] = None

    def add_file(self, path: str, content: bytes) -> None:
        self._add_name(path)
        self.files[path] = content

    def add_link(self, path: str, target: str) -> None:
        self._add_name(path)
        self.links[path] = target

    def _lstat(self, path: str) -> Tuple[str, int]:
        if path in self.folders:
            return "folder", 0
        if path in self.files:
            return "file", len(self.files[path])
        if path in self.links:
            return "link", 0
        parent = posixpath.dirname(path)
        _raise(errno.ENOTDIR if parent in self.files else errno.ENOENT, path)

    def _readlink(self, path: str) -> str:
        return self.links[path]

    def _content(self, path: str, limit: int) -> bytes:
        if path not in self.files:
            _raise(errno.EISDIR, path)
        return self.files[path][:limit]

    def _children(self, path: str) -> List[str]:
        if path not in self.folders:
            _raise(errno.ENOTDIR, path)
        return list(self.folders[path])

    @classmethod
    def from_tar(cls, file: str) -> MemoryTree:
        """Raises ValueError for what is no tree: damaged, too large, with names that lead outside."""
        tree, total = cls(), 0
        try:
            with tarfile.open(file, "r:*") as archive:
                for number, member in enumerate(archive):
                    total += member.size
                    if number >= MAX_ENTRIES or total > MAX_BYTES:
                        raise ValueError(
                            "%s: more than %d entries or %d bytes unpacked" % (file, MAX_ENTRIES, MAX_BYTES)
                        )
                    tree._add_member(archive, member, file)
        except (tarfile.TarError, EOFError, OSError, OverflowError) as error:
            why = " (%s)" % error if "\n" not in str(error) else ""  # tarfile tells what each of its formats says
            raise ValueError("%s: not a readable tar archive%s" % (file, why)) from error
        except Exception as error:
            if type(error).__module__ in ("zlib", "lzma", "_lzma"):
                raise ValueError("%s: damaged archive (%s)" % (file, error)) from error
            raise
        return tree

    def _add_member(self, archive: tarfile.TarFile, member: tarfile.TarInfo, file: str) -> None:
        parts = [part for part in member.name.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise ValueError("%s: the name %r leads outside the tree" % (file, member.name))
        path = "/" + "/".join(parts)
        if member.isdir():
            self.add_folder(path)
        elif member.issym():
            self.add_link(path, member.linkname)
        elif member.isreg():
            content = archive.extractfile(member)
            self.add_file(path, content.read() if content else b"")


def strip_single_folder(tree: MemoryTree) -> MemoryTree:
    """The tree below its only folder, where everything lies in one folder that is not part of a machine."""
    top = list(tree.folders["/"])
    if len(top) != 1 or top[0] in ("sys", "proc", "cmd") or "/" + top[0] not in tree.folders:
        return tree
    prefix, inner = "/" + top[0], MemoryTree()
    for path in tree.folders:
        if path.startswith(prefix + "/"):
            inner.add_folder(path[len(prefix) :])
    for path, content in tree.files.items():
        inner.add_file(path[len(prefix) :], content)
    for path, target in tree.links.items():
        inner.add_link(path[len(prefix) :], target)
    return inner


def open_tree(path: str) -> Tree:
    """A folder or a tar archive (gz, xz, bz2 too) that holds `sys/` or `proc/`. Raises ValueError in one sentence."""
    tree: Optional[Tree] = None
    if os.path.isdir(path):
        tree = FolderTree(path)
    elif os.path.exists(path):
        tree = strip_single_folder(MemoryTree.from_tar(path))
    else:
        raise ValueError("%s: no such file or folder" % path)
    if not {"sys", "proc", "META.json"} & set(tree.list("/")):
        raise ValueError("%s: holds neither sys/ nor proc/ nor META.json, so it is no captured tree" % path)
    return tree
