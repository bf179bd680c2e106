"""What travels to Ray's nodes goes with the call itself: larger arguments take ways of their own, which may be blocked."""

from __future__ import annotations

import json
import zlib

import pytest

from ncdiag.bringup import agents, ray_bridge
from ncdiag.bringup.serve import MARK


@pytest.mark.parametrize("whole", [b"x" * (3 * ray_bridge.INLINE + 1), "y" * ray_bridge.INLINE, b"", ""])
def test_no_piece_is_larger_than_what_travels_with_a_call(whole: bytes | str) -> None:
    pieces = ray_bridge.cut(whole)
    assert type(whole)().join(pieces) == whole and all(0 < len(piece) <= ray_bridge.INLINE for piece in pieces)


def test_the_sampler_comes_up_from_its_pieces() -> None:
    """As in a worker of Ray, without Ray: the packed ncdiag of an agent in pieces, an interpreter of its own, an answer."""
    content = ray_bridge.cut(agents.packed("ncdiag.bringup.ray_bridge"))
    request = json.dumps({"full": False})
    printed = ray_bridge.ncdiag_look(ray_bridge._RUN, request, 30.0, len(content), *content)
    answer = next(line for line in zlib.decompress(printed).decode().splitlines() if line.startswith(MARK))
    assert "states" in json.loads(answer[len(MARK) :])
