"""YAML as plain data with the line of every value, so that an error can say where it is.

Every scalar stays the text that stands in the file (`yes`, `no`, `0123` mean themselves); pydantic turns it into a
number where the schema wants one. Tags, anchors, aliases, doubled keys and second documents are refused: a playbook
needs none, and each of them is a way to surprise the reader.
"""

from __future__ import annotations

from dataclasses import dataclass

import yaml

MAX_BYTES = 128 * 1024
MAX_DEPTH = 12

Path = tuple["str | int", ...]


class PlaybookError(Exception):
    """What a person wrote is wrong. `problems` holds one `file:line: what` each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Marked:
    """One YAML document."""

    source: str  # file name, for messages
    data: object  # dict, list and str only; an empty value is ""
    lines: dict[Path, int]  # path of a value -> its line, counted from 1

    def line(self, path: Path) -> int:
        """The line of the value at `path` or of its nearest parent.

        pydantic puts the names of union members into its paths (`steps.0.run.expect` for `steps.0.expect`): segments may
        be skipped, and of the ways to do so the one that leads deepest and ends last is taken.
        """
        found: dict[Path, int] = {(): 0}
        for number, segment in enumerate(path):
            deeper = [(*above, segment) for above in found if (*above, segment) in self.lines]
            found.update(dict.fromkeys(deeper, number))
        best = max(found, key=lambda candidate: (len(candidate), found[candidate]))
        return self.lines.get(best, 1)

    def problem(self, path: Path, text: str) -> str:
        """`file:line: text`."""
        return f"{self.source}:{self.line(path)}: {text}"


def parse(text: str, source: str) -> Marked:
    """Raises PlaybookError for anything but one small plain YAML document."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise PlaybookError([f"{source}:1: larger than {MAX_BYTES} bytes"])
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if isinstance(token, yaml.AnchorToken | yaml.AliasToken | yaml.TagToken | yaml.DirectiveToken):
                kind = type(token).__name__.removesuffix("Token").lower()
                raise PlaybookError([f"{source}:{token.start_mark.line + 1}: a YAML {kind} is not allowed here"])
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise PlaybookError([f"{source}:{line}: not valid YAML: {error.context or ''} {error.problem}"]) from None
    except yaml.YAMLError as error:
        raise PlaybookError([f"{source}:1: not valid YAML: {str(error).splitlines()[0]}"]) from None
    if node is None:
        raise PlaybookError([f"{source}:1: the file is empty"])
    lines: dict[Path, int] = {}
    return Marked(source, _plain(node, (), lines, source), lines)


def _plain(node: yaml.Node, path: Path, lines: dict[Path, int], source: str) -> object:
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if len(path) > MAX_DEPTH:
        raise PlaybookError([f"{source}:{line}: nested deeper than {MAX_DEPTH} levels"])
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, object] = {}
        for key, value in node.value:
            name, at = key.value, key.start_mark.line + 1
            if not isinstance(name, str):
                raise PlaybookError([f"{source}:{at}: a key must be plain text"])
            if name in mapping:
                raise PlaybookError([f"{source}:{at}: the key {name!r} stands here twice"])
            below = (*path, name)
            lines[below] = at
            mapping[name] = _plain(value, below, lines, source)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, number), lines, source) for number, item in enumerate(node.value)]
    return str(node.value)
