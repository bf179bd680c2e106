"""What the command line refuses before anything is measured."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from ncdiag.bandwidth import sweep
from ncdiag.cli.bandwidth import command


def refused(*argv: str) -> str:
    """What it says; it must have ended with 2."""
    done = CliRunner().invoke(command, list(argv), obj={"quiet": True, "color": "never", "verbose": 0})
    assert done.exit_code == 2, done.output
    return done.output


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
    assert said in " ".join(refused(*argv).split())


def test_sizes_come_to_an_end() -> None:
    assert sweep.sizes(4, 64, 4) == [4, 16, 64]
    with pytest.raises(ValueError, match="no sizes from 0 bytes on"):
        sweep.sizes(0, 64, 2)
