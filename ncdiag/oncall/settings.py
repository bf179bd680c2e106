"""The settings file of `ncdiag oncall`: YAML, errors with file and line."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from ncdiag.playbook.loader import exists
from ncdiag.playbook.marks import PlaybookError, parse
from ncdiag.playbook.schema import Slug

_Text = Annotated[str, StringConstraints(min_length=1, max_length=400, pattern=r"^[^\x00-\x1f\x7f]+$")]
MIN_TOKEN = 20


class SettingsError(Exception):
    """One problem a line, `file:line: what`."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tls(_Part):
    """PEM files. With `client_ca` every client must show a certificate of it (mutual TLS)."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class Rule(_Part):
    """Alerts whose labels have all these values are answered by this playbook. The first rule that fits counts."""

    labels: Annotated[dict[_Text, _Text], Field(min_length=1, max_length=20)]
    playbook: Slug
    nodes: _Text | None = None

    @field_validator("playbook")
    @classmethod
    def _there_is_one(cls, name: str) -> str:
        if not exists(name):
            raise ValueError(f"there is no playbook {name!r}; see: ncdiag playbook list")
        return name


class Post(_Part):
    """Where the record is sent, as JSON."""

    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s]+$", max_length=1000)]
    token_file: Path | None = None


class Settings(_Part):
    """Everything `ncdiag oncall` needs to know."""

    listen: _Text = "127.0.0.1"
    """An address, not a name."""
    port: Annotated[int, Field(ge=0, le=65535)] = 9794
    token_file: Path | None = None
    tls: Tls | None = None
    database: Path
    nodes: _Text = "local"
    rules: Annotated[list[Rule], Field(min_length=1, max_length=500)]
    otherwise: Slug | Literal["ignore"] = "ignore"
    """The playbook for alerts that no rule fits."""
    queue: Annotated[int, Field(ge=1, le=1000)] = 32
    workers: Annotated[int, Field(ge=1, le=16)] = 2
    limit_s: Annotated[float, Field(ge=1, le=3600)] = 300.0
    """Seconds one walk may take."""
    max_age_s: Annotated[float, Field(ge=60)] = 86400.0
    """Alerts that began longer ago are refused; what was run is remembered longer, so that a replay never runs."""
    max_body: Annotated[int, Field(ge=1024, le=16 << 20)] = 262144
    """Bytes of one request."""
    client_s: Annotated[float, Field(ge=0.2, le=60)] = 10.0
    """Seconds a client may take to send its request."""
    connections: Annotated[int, Field(ge=1, le=256)] = 16
    post: Post | None = None
    hook: Annotated[list[_Text], Field(min_length=1, max_length=40)] | None = None
    """A program and its arguments; it gets the record as JSON on stdin. No shell."""

    @field_validator("otherwise")
    @classmethod
    def _known(cls, name: str) -> str:
        if name != "ignore" and not exists(name):
            raise ValueError(f"there is no playbook {name!r}")
        return name

    @model_validator(mode="after")
    def _guarded(self) -> Settings:
        try:
            loopback = ipaddress.ip_address(self.listen).is_loopback
        except ValueError:
            raise ValueError(f"listen: {self.listen!r} is no address") from None
        mutual = self.tls is not None and self.tls.client_ca is not None
        if self.token_file is None and not mutual:
            raise ValueError("give token_file, or tls with client_ca: without one anybody could start a walk")
        if not loopback and self.tls is None:
            raise ValueError(
                "listen is not a loopback address, so tls is needed: the token would be readable on the way"
            )
        if self.hook is not None and not Path(self.hook[0]).is_absolute():
            raise ValueError("hook: name the program by its absolute path")
        return self


def read(path: Path) -> Settings:
    """Raises SettingsError."""
    try:
        marked = parse(path.read_text("utf-8"), str(path))
    except PlaybookError as error:
        raise SettingsError(str(error)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read {path}: {error}") from None
    try:
        return Settings.model_validate(marked.data)
    except ValidationError as error:
        problems = [
            marked.problem(tuple(e["loc"]), f"{'.'.join(map(str, e['loc']))}: {e['msg']}") for e in error.errors()
        ]
        raise SettingsError("\n".join(problems)) from None


def read_token(path: Path) -> str:
    """The token in a file that only its owner can read. Raises SettingsError."""
    try:
        token = path.read_text("ascii").strip()
        readable = path.stat().st_mode & 0o077
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the token in {path}: {error}") from None
    if readable:
        raise SettingsError(f"{path} can be read by others; run: chmod 600 {path}")
    if len(token) < MIN_TOKEN:
        raise SettingsError(f"the token in {path} has fewer than {MIN_TOKEN} characters")
    return token
