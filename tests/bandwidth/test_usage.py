"""What the command line refuses before anything is measured."""

from __future__ import annotations

import click
import pytest

from ncdiag.bandwidth import sweep
from ncdiag.cli import cli


def refused(*argv: str) -> str:
    """What it says; `main` ends with 2 for every exception of click's."""
    with pytest.raises(click.ClickException) as raised:
        cli.main(["-q", "bandwidth", *argv], standalone_mode=False)
    return raised.value.format_message()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--min", "0", "--max", "64"), "--min 0: at least one element, which is 4 bytes of float32"),
        (("--min", "1", "--dtype", "bfloat16"), "--min 1: at least one element, which is 2 bytes of bfloat16"),
        (("--max", "0"), "--max 0: at least one element"),
        (("--pair-size", "0"), "--pair-size 0: at least one element"),
        (("--min", "1M", "--max", "1K"), "--max 1024 is less than --min 1048576 (bytes): no size is left"),
    ],
)
def test_sizes_that_cannot_be_measured(argv: tuple[str, ...], said: str) -> None:
    assert said in refused(*argv)


def test_sizes_come_to_an_end() -> None:
    assert sweep.sizes(4, 64, 4) == [4, 16, 64]
    with pytest.raises(ValueError, match="no sizes from 0 bytes on"):
        sweep.sizes(0, 64, 2)
