"""What a container runs: its command, arguments and script as simple commands, and vLLM's options in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncdiag.manifests.document import mapping, sequence

_SHELLS = re.compile(r"(?:^|/)(?:ba|da|z|k)?sh$")
_VARIABLE = re.compile(r"\$(?:\((\w+)\)|\{(\w+)(?::-[^}]*)?\}|(\w+))")
_SHORT = {"-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size", "-n": "--nnodes", "-r": "--node-rank",
          "-dpl": "--data-parallel-size-local"}  # fmt: skip
_FLAGS = {"--headless", "--enable-expert-parallel", "--trust-remote-code", "--enforce-eager", "--enable-prefix-caching"}


SCRIPT = "multi-node-serving.sh"
"""vLLM's examples/…/multi-node-serving.sh: `leader` runs `ray start --head` and waits for the others, `worker` joins."""


@dataclass(frozen=True)
class Engine:
    """One `vllm serve` (or its module, or the image's own entry point)."""

    model: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    """`--tensor-parallel-size` -> `8`; short names and underscores written out; a flag has an empty value."""

    def number(self, name: str) -> int | None:
        """None where it is not given or no number can be told (a variable)."""
        value = self.options.get(name, "")
        return int(value) if value.isdecimal() else None

    def size(self, name: str) -> int | None:
        """1 where it is not given; None where it is given as something that cannot be told."""
        return 1 if name not in self.options else self.number(name)


def environment(container: Mapping[str, Any]) -> dict[str, str]:
    """The variables that are written out. Others (fieldRef, secrets) are left out."""
    entries = [mapping(item) for item in sequence(container.get("env"))]
    return {
        str(item["name"]): str(item["value"]) for item in entries if "name" in item and item.get("value") is not None
    }


def commands(container: Mapping[str, Any]) -> list[list[str]]:
    """Simple commands in their order. Variables that the manifest gives a value are put in."""
    known = environment(container)
    argv = [str(word) for key in ("command", "args") for word in sequence(container.get(key))]
    if (
        not sequence(container.get("command"))
        and argv
        and "vllm" in str(container.get("image", ""))
        and argv[0].startswith("-")
    ):
        argv = ["vllm", "serve", *argv]
    script = _script(argv)
    if script is None:
        return [[_filled(word, known) for word in argv]] if argv else []
    return [[_filled(word, known) for word in words] for words in _split(script)]


def _script(argv: Sequence[str]) -> str | None:
    """What a shell is given to run; None where no shell is run."""
    if not argv or not _SHELLS.search(argv[0]):
        return None
    for number, word in enumerate(argv[1:], 1):
        if re.fullmatch(r"-[a-z]*c[a-z]*", word) and number + 1 < len(argv):
            return argv[number + 1]
    return None


def _split(script: str) -> Iterator[list[str]]:
    script = re.sub(r"\$\((\w+)\)", r"${\1}", re.sub(r"\\\r?\n", " ", script))
    for line in script.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
        lexer.whitespace_split = True
        words: list[str] = []
        try:
            for token in lexer:
                if set(token) <= set(";&|()"):
                    if words and token != ")":
                        yield words
                        words = []
                else:
                    words.append(token)
        except ValueError:  # a quote that ends on another line: what was read so far counts
            pass
        if words:
            yield words


def _filled(word: str, known: Mapping[str, str]) -> str:
    return _VARIABLE.sub(
        lambda match: known.get(match.group(1) or match.group(2) or match.group(3), match.group()), word
    )


def engines_of(container: Mapping[str, Any]) -> list[Engine]:
    """Every engine that its commands name: a script may start one or another."""
    return [found for words in commands(container) if (found := _engine(words)) is not None]


def _engine(words: Sequence[str]) -> Engine | None:
    for number, word in enumerate(words):
        after = words[number + 1] if number + 1 < len(words) else ""
        if (word == "vllm" or word.endswith("/vllm")) and after == "serve":
            return _options(words[number + 2 :])
        if word.startswith("vllm.entrypoints"):
            return _options(words[number + 1 :])
    return None


def _options(words: Sequence[str]) -> Engine:
    options: dict[str, str] = {}
    positional = ""
    number = 0
    while number < len(words):
        word = words[number]
        number += 1
        if not word.startswith("-") or word == "-":
            positional = positional or word
            continue
        name, equals, value = word.partition("=")
        name = _SHORT.get(name, name.replace("_", "-"))
        if not equals and name not in _FLAGS and number < len(words) and not words[number].startswith("-"):
            value = words[number]
            number += 1
        options[name] = value
    return Engine(options.get("--model", "") or positional, options)


def ray_start(container: Mapping[str, Any]) -> dict[str, str] | None:
    """Options of the first `ray start`, or of vLLM's script that runs it; None where there is none."""
    for words in commands(container):
        for number, word in enumerate(words[:-1]):
            after, options = words[number + 1], _options(words[number + 2 :]).options
            if (word == "ray" or word.endswith("/ray")) and after == "start":
                return dict(options)
            if word.endswith(SCRIPT) and after in ("leader", "worker"):
                port = options.get("--ray-port", "6379")
                return (
                    {"--head": "", "--port": port}
                    if after == "leader"
                    else {"--address": f"{options.get('--ray-address', '')}:{port}"}
                )
    return None
