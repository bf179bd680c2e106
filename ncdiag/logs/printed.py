"""A stream as its programs printed it: in order, and out of what a collector wrapped around it."""

from __future__ import annotations

from collections.abc import Iterator

from ncdiag.logs.intake import Stream
from ncdiag.logs.rearranged import arranged
from ncdiag.logs.wrapped import is_wrapped, unwrapped


def printed(stream: Stream) -> tuple[Iterator[bytes], list[int] | None]:
    """Its chunks, and the number that each line has in the file; None where the lines stand as they do there."""
    chunks, numbers = arranged(stream.head, stream.chunks)
    return unwrapped(chunks) if is_wrapped(stream.head) else chunks, numbers
