"""Environment variables as people write them down: shell scripts, env files, systemd units, `docker run`, Kubernetes, Compose, Ray.

Only what stands there is taken: a value made at start (`$(hostname)`, `valueFrom:`) is None, never guessed.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from ncdiag.nccl.advice import ALL_NODES

Values = Dict[str, Optional[str]]
"""NAME -> value; None: it is made at start."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MADE = re.compile(r"[$`]")
_SKIPPED = {"--env", "-e", "export", "ENV", "declare", "-x"}
_LAUNCHERS = {"docker", "podman", "nerdctl", "srun", "mpirun", "sudo", "env"}
_BLOCKS = ("env", "environment", "env_vars")

MAX_LINE = 1 << 16
"""Characters of a line that is read: half of what Linux takes as one argument (execve(2), MAX_ARG_STRLEN)."""

_QUOTED = re.compile(r"(?<!\w)[A-Za-z_]\w*='[^']*'")
"""Begins only where a word does: within a long word each letter would be tried."""

_PROGRAM = re.compile(r"[\w./~$(){}\[!:;|&<*\"'+-][\w./~$(){}\[\]!:;|&<>*\"'+,?@%=-]{0,254}\Z", re.ASCII)
"""What a line of a script may begin with: a program (file names have 255 bytes at most), an option, a keyword."""

_OTHERWISE = re.compile(
    r"(?:(?:export|declare -x|ENV|set)\s+)?[A-Z][A-Z0-9]*_[A-Z0-9_]*(?:\s*\+?[:=]|\s+\S)|setenv\s|set\s+-\w*x\w*\s|\$env:"
)
"""An assignment that no shell takes as one (`NAME = value`, `NAME: value`), or one of csh, fish, PowerShell or `ENV NAME value`."""


class NotUnderstood(ValueError):
    """The file holds no environment in a form known here; the text says what was tried."""


def read(text: str, name: str = "") -> Dict[str, Values]:
    """Node (`*`: all) -> values. `name`: the file's, whose ending says YAML or JSON. Raises NotUnderstood."""
    if _is_structured(text, name):
        found: Dict[str, Values] = {ALL_NODES: dict(_structured(text))}
    else:
        found = _shell(text)
    if not any(found.values()):
        raise NotUnderstood(
            "no variable is set in it (NAME=VALUE lines, shell, docker run, Kubernetes, Compose and Ray are read)"
        )
    return found


def not_understood(text: str, name: str = "") -> List[Tuple[int, str]]:
    """(line, what it begins with or why it is not read) of the lines that are neither assignments nor commands: what they set is not known."""
    if _is_structured(text, name) or _is_unit(text):
        return []
    lines = [(number, line) for number, line in _lines(text) if line and line[0] != "#"]
    known = {name for _, line in lines if len(line) <= MAX_LINE for name, _ in _assignments(_words(line))}
    return [(number, why) for number, line in lines for why in [_why_not(line, known)] if why]


def _why_not(line: str, known: Set[str]) -> str:
    """Empty where the line is understood. `known`: names that the file sets."""
    if len(line) > MAX_LINE:
        return f"it has {len(line):,} characters"
    words = _words(line)
    if not words or next(_assignments(words), None) or (words[0] == "export" and known.issuperset(words[1:])):
        return ""
    if _OTHERWISE.match(line) or not _PROGRAM.match(line.split()[0]):
        return "it begins with " + repr(line.split()[0][:40])
    return ""


def _is_structured(text: str, name: str) -> bool:
    return os.path.splitext(name)[1].lower() in (".yaml", ".yml", ".json") or text.lstrip().startswith("{")


def _is_unit(text: str) -> bool:
    return re.search(r"^\[Service\]", text, re.M) is not None


def for_node(found: Dict[str, Values], node: str) -> Values:
    """What holds on one node: what is said of all, and of it."""
    return {**found.get(ALL_NODES, {}), **found.get(node, {})}


def _structured(text: str) -> Iterator[Tuple[str, Optional[str]]]:
    import yaml

    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise NotUnderstood(f"it is no YAML{where}") from None
    yield from _walk(documents, set())


def _walk(value: Any, seen: Set[int]) -> Iterator[Tuple[str, Optional[str]]]:
    """Through everything once: YAML may refer back to what it is in."""
    if not isinstance(value, (dict, list)) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, list):
        for item in value:
            yield from _walk(item, seen)
        return
    for key, inner in value.items():
        if key in _BLOCKS or (key in ("data", "stringData") and value.get("kind") in ("ConfigMap", "Secret")):
            yield from _block(inner)
        else:
            yield from _walk(inner, seen)


def _block(block: Any) -> Iterator[Tuple[str, Optional[str]]]:
    """`{NAME: value}`, `[{name:, value:}]` (Kubernetes) or `["NAME=value"]` (Compose)."""
    if isinstance(block, dict):
        yield from ((str(name), None if isinstance(value, dict) else _scalar(value)) for name, value in block.items())
    for item in block if isinstance(block, list) else ():
        if isinstance(item, dict) and "name" in item:
            yield str(item["name"]), _scalar(item.get("value", "")) if "valueFrom" not in item else None
        elif isinstance(item, str):
            name, equals, value = item.partition("=")
            yield name, value if equals and not _MADE.search(value) else None


def _scalar(value: Any) -> Optional[str]:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = "" if value is None else str(value)
    return None if "$(" in text or "${" in text else text


def _shell(text: str) -> Dict[str, Values]:
    found: Dict[str, Values] = {ALL_NODES: {}}
    node = ALL_NODES
    unit = _is_unit(text)
    for _, line in _lines(text):
        if len(line) > MAX_LINE:
            continue
        if line in (";;", "esac"):
            node = ALL_NODES
            continue
        branch = re.match(r"\(?('[^']*'|[^\s()'\"]+)\)$", line)
        if branch:
            node = shlex.split(branch.group(1))[0]
            found.setdefault(node, {})
            continue
        if not unit or line.startswith("Environment="):
            _line(line, found[node])
    return found


def _lines(text: str) -> Iterator[Tuple[int, str]]:
    """The number of each line, and the line with those that continue it."""
    number = 1
    for line in re.split(r"(?<!\\)\n", text.replace("\r\n", "\n")):
        yield number, line.replace("\\\n", " ").strip()
        number += line.count("\n") + 1


def _words(line: str) -> List[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()


def _line(line: str, values: Values) -> None:
    literal = {piece.partition("=")[0] for piece in _QUOTED.findall(line)}
    words = _words(line)
    if words[:1] == ["unset"]:
        for name in words[1:]:
            values.pop(name, None)
        return
    for name, value in _assignments(words):
        values[name] = None if _MADE.search(value) and name not in literal else value


def _assignments(words: List[str]) -> Iterator[Tuple[str, str]]:
    """The NAME=value words; of a command line only those before the command, or behind --env and -e."""
    through = bool(words) and words[0] in _LAUNCHERS
    for word in words:
        word = re.sub(r"^(?:--env=|-e(?=[A-Z_]+=)|Environment=)", "", word).rstrip(";")
        name, equals, value = word.partition("=")
        if equals and _NAME.match(name):
            yield name, value
        elif not through and word not in _SKIPPED:
            return
