"""Reads NCCL's own XML: topology and graph dumps, and files written by hand for NCCL_TOPO_FILE.

It is no XML parser in full. It takes what NCCL's reader takes and more (headers, tabs, files cut off), never expands an
entity, opens nothing, and notes every place where NCCL itself would refuse the file.
Source: src/graph/xml.cc of v2.30.7-1 (xmlGetNode, xmlGetToken, xmlLoadSub).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Optional, Tuple

MAX_ELEMENTS = 65536  # elements; NCCL's own limit for graphs
MAX_DEPTH = 128  # levels; real machines stay below 16
MAX_ATTRIBUTES = 64  # per element; NCCL keeps 16 and ignores the rest
MAX_REMARKS = 20  # a hostile file must not fill the report

_MARKUP = re.compile(r"<!--.*?(?:-->|\Z)|<[^<>]*(?:>|\Z|(?=<))", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_ATTRIBUTE = re.compile(r"""(?<![\w.-])([A-Za-z_][\w.-]*)\s*=\s*(?:"([^"]*)"|'([^']*)')""")


class NotNcclXml(ValueError):
    """The text holds no element at all, or one of another kind than was asked for."""


@dataclass
class Element:
    name: str
    attributes: Dict[str, str]
    line: int  # of its start, 1 is the first
    children: List[Element] = field(default_factory=list)

    def named(self, name: str) -> Iterator[Element]:
        return (child for child in self.children if child.name == name)

    def text(self, name: str, default: str = "") -> str:
        return self.attributes.get(name, default)

    def integer(self, name: str) -> Optional[int]:
        """As NCCL's strtol with base 0 reads it: leading digits, 0x for hex; None where there is no number."""
        match = re.match(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|\d+)", self.attributes.get(name, ""))
        if match is None:
            return None
        digits = match.group(2)[:18]
        number = int(digits, 16 if digits[:2].lower() == "0x" else 10)
        return -number if match.group(1) == "-" else number

    def flag(self, name: str) -> Optional[bool]:
        number = self.integer(name)
        return None if number is None else number != 0


@dataclass
class Document:
    root: Element
    remarks: List[str] = field(default_factory=list)

    @property
    def cut(self) -> bool:
        return any("ends inside" in remark for remark in self.remarks)


def read_xml(text: str, root_name: str) -> Document:
    """The first `<root_name>` of the text and what is below it; text around it (a shell prompt, a log) is passed over.

    Raises NotNcclXml if there is none.
    """
    start = re.search(rf"<{root_name}[\s>/]", text)
    if start is None:
        raise NotNcclXml(f"no <{root_name}> element in it")
    reader = _Reader(text, start.start())
    for match in _MARKUP.finditer(text, start.start()):
        if not reader.take(match.start(), match.group()):
            break
    return Document(reader.finish(), reader.remarks)


class _Reader:
    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.remarks: List[str] = []
        self.open: List[Element] = []
        self.root: Optional[Element] = None
        self.count = 0
        self._at, self._line = 0, 1
        before = text[:start].strip()
        if before.startswith("<?"):
            self.remark(1, "an XML header <?…?>, at which NCCL stops with an error: remove it")
        elif before and not before.startswith("<!--"):
            self.remark(1, "text before the first element, at which NCCL stops with an error")

    def line_at(self, position: int) -> int:
        self._line += self.text.count("\n", self._at, position)
        self._at = position
        return self._line

    def remark(self, line: int, what: str) -> None:
        if len(self.remarks) < MAX_REMARKS:
            self.remarks.append(f"line {line}: {what}")

    def take(self, position: int, markup: str) -> bool:
        """One piece of markup; False when the root is closed or a limit is reached."""
        line = self.line_at(position)
        if markup.startswith("<!--"):
            return True
        if markup.startswith(("<!", "<?")):
            self.remark(line, "a declaration, which NCCL does not understand; passed over")
            return True
        if not markup.endswith(">"):
            self.remark(line, "the file ends inside an element, or one is not closed with >")
            return True
        if markup.startswith("</"):
            return self.close(line, markup[2:-1].strip())
        return self.start(line, markup)

    def start(self, line: int, markup: str) -> bool:
        body = markup[1:-1]
        single = body.endswith("/")
        name = _NAME.match(body)
        if name is None:
            self.remark(line, "an element without a name")
            return True
        element = Element(name.group(), _attributes(body, name.end()), line)
        if "\t" in body:
            self.remark(line, "a tab between attributes, which NCCL takes as part of a name")
        self.count += 1
        if self.count > MAX_ELEMENTS or len(self.open) >= MAX_DEPTH:
            self.remark(line, f"more than {MAX_ELEMENTS} elements or {MAX_DEPTH} levels; the rest is left out")
            return False
        if self.open:
            self.open[-1].children.append(element)
        if self.root is None:
            self.root = element
        if not single:
            self.open.append(element)
        return bool(self.open)

    def close(self, line: int, name: str) -> bool:
        names = [element.name for element in self.open]
        if name not in names:
            self.remark(line, f"</{name}> closes nothing; NCCL stops there with an error")
            return True
        if names[-1] != name:
            self.remark(line, f"</{name}> while <{names[-1]}> is open; NCCL stops there with an error")
        while self.open:
            if self.open.pop().name == name:
                break
        return bool(self.open)

    def finish(self) -> Element:
        if self.open:
            line = self.line_at(len(self.text))
            self.remark(line, f"the file ends inside <{self.open[-1].name}>: it is cut off, the rest is not known")
        if self.root is None:
            raise NotNcclXml("its first element is not complete")
        return self.root


def _attributes(body: str, start: int) -> Dict[str, str]:
    pairs: List[Tuple[str, str]] = []
    for match in _ATTRIBUTE.finditer(body, start):
        value = match.group(2) if match.group(2) is not None else match.group(3)
        pairs.append((match.group(1), value))
        if len(pairs) >= MAX_ATTRIBUTES:
            break
    return dict(pairs)
