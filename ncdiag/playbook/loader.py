"""Finds and reads playbooks: those of the package, and a person's own folder in front of them."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from pydantic import ValidationError

from ncdiag.playbook.marks import Marked, PlaybookError, parse
from ncdiag.playbook.schema import Playbook
from ncdiag.suggest import did_you_mean

_NAME = re.compile(r"^[a-z0-9]+(-[a-z0-9]+)*$")


def names(folder: Path | None = None) -> list[str]:
    """Names of all playbooks there are, sorted. A file whose name is no slug is not a playbook."""
    found = {path.stem for path in folder.glob("*.yaml")} if folder else set()
    entries = [entry.name for entry in resources.files("ncdiag.playbooks").iterdir()]
    found |= {entry[:-5] for entry in entries if entry.endswith(".yaml")}
    return sorted(name for name in found if _NAME.match(name))


def exists(name: str) -> bool:
    """Whether the package has a playbook for this cause."""
    return bool(_NAME.match(name)) and resources.files("ncdiag.playbooks").joinpath(f"{name}.yaml").is_file()


def load(name: str, folder: Path | None = None) -> Playbook:
    """The playbook of this name. Raises PlaybookError; a name that is no slug (a path, say) is never opened."""
    return load_marked(name, folder)[0]


def load_marked(name: str, folder: Path | None = None) -> tuple[Playbook, Marked]:
    """The playbook, and where its values stand in the file."""
    if not _NAME.match(name):
        raise PlaybookError([f"{name!r} is not the name of a playbook{_hint(name, folder)}"])
    text, source = _read(name, folder)
    return validate(name, text, source)


def _hint(name: str, folder: Path | None) -> str:
    return did_you_mean(name, names(folder)) or "; see: ncdiag playbook list"


def validate(name: str, text: str, source: str) -> tuple[Playbook, Marked]:
    """Reads one file's text. Raises PlaybookError with file and line in every problem."""
    marked = parse(text, source)
    if not isinstance(marked.data, dict):
        raise PlaybookError([f"{source}:1: a playbook is a mapping with title, looks_like, known_by and steps"])
    if "name" in marked.data:
        raise PlaybookError([marked.problem(("name",), "the file's name is the playbook's name; drop this key")])
    try:
        return Playbook.model_validate({"name": name, **marked.data}), marked
    except ValidationError as error:
        problems = [
            marked.problem(tuple(e["loc"]), f"{'.'.join(str(x) for x in e['loc'])}: {e['msg']}") for e in error.errors()
        ]
        raise PlaybookError(problems) from None


def _read(name: str, folder: Path | None) -> tuple[str, str]:
    own = folder / f"{name}.yaml" if folder else None
    try:
        if own and own.is_file():
            return own.read_text("utf-8"), str(own)
        return resources.files("ncdiag.playbooks").joinpath(f"{name}.yaml").read_text("utf-8"), f"playbooks/{name}.yaml"
    except FileNotFoundError:
        raise PlaybookError([f"there is no playbook {name!r}{_hint(name, folder)}"]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise PlaybookError([f"cannot read playbook {name!r}: {error}"]) from None
