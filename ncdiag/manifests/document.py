"""YAML files as plain data with the line of every value. Anchors and merge keys are followed, up to a bound; templates are refused."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Union

import click
import yaml

MAX_BYTES = 2 << 20
MAX_DEPTH = 64
MAX_VALUES = 100_000
"""Values of one file with its aliases followed; a large chart has some thousands."""

_TEMPLATE = "; a template? render it first (helm template, envsubst)"

Path = tuple[Union[str, int], ...]
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE = "tag:yaml.org,2002:merge"
_PLAIN_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str")}


class ManifestError(Exception):
    """A file that cannot be read: one sentence, `file:line: what`."""


@dataclass(frozen=True)
class Document:
    """One object of Kubernetes."""

    source: str
    data: dict[str, Any]
    lines: dict[Path, int] = field(repr=False)
    root: Path = ()
    """Where it stands in its YAML document; not empty for the items of a List."""

    def line(self, path: Path) -> int:
        """Of the value at `path`, or of its nearest parent that is there."""
        whole = self.root + path
        return next((self.lines[whole[:end]] for end in range(len(whole), -1, -1) if whole[:end] in self.lines), 1)

    @property
    def kind(self) -> str:
        return str(self.data.get("kind", ""))

    @property
    def name(self) -> str:
        return str(mapping(mapping(self.data.get("metadata"))).get("name", "")) or "unnamed"


def mapping(value: object) -> dict[str, Any]:
    """`value`, or nothing where it is no mapping."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def read(path: str) -> list[Document]:
    """Every object in one file. Raises ManifestError."""
    try:
        with click.open_file(path, "rb") as file:  # `-` is standard input
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ManifestError(f"{path}: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise ManifestError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
    try:
        return parse(raw.decode("utf-8"), path)
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path}: not UTF-8 text (byte {error.start})") from None


def parse(text: str, source: str) -> list[Document]:
    """Raises ManifestError."""
    found = []
    for data, lines in values(text, source):
        if data is None:
            continue
        if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
            raise ManifestError(f"{source}:{lines.get((), 1)}: no object of Kubernetes (it has no kind)")
        if data["kind"].endswith("List") and isinstance(data.get("items"), list):
            found += [
                Document(source, item, lines, ("items", number))
                for number, item in enumerate(data["items"])
                if isinstance(item, dict)
            ]
        else:
            found.append(Document(source, data, lines))
    if not found:
        raise ManifestError(f"{source}:1: no object in it")
    return found


def values(text: str, source: str) -> Iterator[tuple[Any, dict[Path, int]]]:
    """Each YAML document as data and lines. Raises ManifestError."""
    try:
        _look(text, source)
        counter = itertools.count(1)
        for node in yaml.compose_all(text, Loader=_Loader):
            lines: dict[Path, int] = {}
            yield _Reader(source, lines, counter).plain(node, ()), lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ManifestError(
            f"{source}:{line}: not valid YAML: {error.problem or error.context}{_hint(text, line)}"
        ) from None
    except yaml.YAMLError as error:
        raise ManifestError(f"{source}:1: not valid YAML: {str(error).splitlines()[0]}") from None


def _hint(text: str, line: int) -> str:
    near = "\n".join(text.splitlines()[max(0, line - 2) : line + 1])
    return _TEMPLATE if re.search(r"\{\{|\}\}|^\s*\{%", near) else ""


def _look(text: str, source: str) -> None:
    """Depth, before anything is built: what is nested too deep must not be followed by recursion."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                line = event.start_mark.line + 1 if event.start_mark else 1
                raise ManifestError(f"{source}:{line}: nested deeper than {MAX_DEPTH} levels")
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            depth -= 1


class _Reader:
    def __init__(self, source: str, lines: dict[Path, int], counter: Iterator[int]) -> None:
        self._source, self._lines, self._counter = source, lines, counter
        self._scalars = yaml.constructor.SafeConstructor()

    def plain(self, node: yaml.Node | None, path: Path) -> Any:
        if node is None:
            return None
        line = node.start_mark.line + 1
        if next(self._counter) > MAX_VALUES:
            raise ManifestError(f"{self._source}:{line}: more than {MAX_VALUES} values, aliases followed")
        if len(path) > MAX_DEPTH:
            raise ManifestError(
                f"{self._source}:{line}: nested deeper than {MAX_DEPTH} levels (an alias that holds itself?)"
            )
        self._lines.setdefault(path, line)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(item, (*path, number)) for number, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag == _MERGE:
                parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for part in reversed(parts):
                    merged.update(mapping(self.plain(part, path)))
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise ManifestError(
                    f"{self._source}:{line}: a key must be plain text{_TEMPLATE if isinstance(key, yaml.MappingNode) else ''}"
                )
            if key.value in own:
                raise ManifestError(f"{self._source}:{line}: the key {key.value!r:.60} stands here twice")
            below = (*path, key.value)
            self._lines[below] = line
            own[key.value] = self.plain(value, below)
        return {**merged, **own}

    def _scalar(self, node: yaml.Node) -> Any:
        if node.tag not in _PLAIN_TAGS:
            return str(node.value)
        try:
            return self._scalars.construct_object(node)
        except (ValueError, yaml.YAMLError, OverflowError):
            return str(node.value)
