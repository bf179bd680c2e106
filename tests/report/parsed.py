"""A page as a tree, by the standard library's parser."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input"}


@dataclass
class Node:
    tag: str
    attributes: dict[str, str]
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Everything below it, in no order that matters."""
        return " ".join([*self.texts, *(child.text for child in self.children)])

    def up(self) -> list[str]:
        """The tags above it."""
        return [] if self.parent is None else [self.parent.tag, *self.parent.up()]


class Page(HTMLParser):
    """`nodes` in the order of the document. Raises AssertionError for an end tag that closes something else."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("", {})
        self.nodes: list[Node] = []
        self._open = [self.root]
        self.feed(text)
        self.close()
        assert self._open == [self.root], f"never closed: {[node.tag for node in self._open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = self._add(tag, attrs)
        if tag not in VOID:
            self._open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add(tag, attrs)

    def _add(self, tag: str, attrs: list[tuple[str, str | None]]) -> Node:
        node = Node(tag, {name: value or "" for name, value in attrs}, self._open[-1])
        self._open[-1].children.append(node)
        self.nodes.append(node)
        return node

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].texts.append(data)

    def all(self, *tags: str) -> list[Node]:
        """Every element of these names."""
        return [node for node in self.nodes if node.tag in tags]
