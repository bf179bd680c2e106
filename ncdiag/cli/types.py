"""What options take: numbers, seconds, files to read, files to write. A mistake is told before any work is done."""

from __future__ import annotations

import math
import os
from typing import Any

import click

from ncdiag.files import must_be_regular, must_be_writable

MAX_S = 7 * 24 * 3600.0
"""A week: the longest that anything waits."""


class Number(click.FloatRange):
    """A number, neither infinite nor NaN."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            finite = math.isfinite(float(value))
        except (TypeError, ValueError, OverflowError):
            finite = True  # not a number at all, as click says
        if not finite:
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return super().convert(value, param, ctx)


class Seconds(Number):
    """A time, a week at most."""

    name = "seconds"

    def __init__(self, min: float, max: float = MAX_S) -> None:
        super().__init__(min=min, max=max)


class InputFile(click.Path):
    """A regular file; `folders`: or a folder. What is not there is told by who reads it, unless `exists`."""

    def __init__(
        self, *, exists: bool = False, folders: bool = False, allow_dash: bool = False, path_type: Any = None
    ) -> None:
        super().__init__(exists=exists, dir_okay=folders, allow_dash=allow_dash, path_type=path_type)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        name = os.fsdecode(value)
        if os.path.exists(name) and not os.path.isdir(name) and not (self.allow_dash and name == "-"):
            try:
                must_be_regular(name)
            except OSError as error:
                self.fail(f"{name}: {error.strerror}", param, ctx)
        return path


class OutputFile(click.Path):
    """A file that can be written; `folders`: or a folder, there or to be made. `-` is stdout."""

    def __init__(self, *, folders: bool = False, path_type: Any = None) -> None:
        super().__init__(dir_okay=folders, path_type=path_type)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        name = os.fsdecode(value)
        if name != "-" and not (self.dir_okay and os.path.isdir(name)):
            try:
                must_be_writable(name)
            except OSError as error:
                self.fail(f"cannot write {name}: {error.strerror}", param, ctx)
        return path
