"""A model whose heads do not divide by the size that was asked for."""

from __future__ import annotations

from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.readers import Readers


def undivided(readers: Readers) -> Iterator[Signal]:
    """Nothing where a server of that size works: then the two are of different models."""
    found = readers.heads.undivided()
    if found is None or readers.proofs():
        return
    heads, at, size, asked = found
    yield Signal(
        "tp-not-dividing",
        Says.STRONG,
        f"the model has {heads} attention heads, which do not divide by the tensor parallel size {size}",
        [at.evidence(), asked.evidence()],
        order=min(at.order, asked.order),
        remedy=f"a tensor parallel size that divides {heads}: {', '.join(str(n) for n in range(2, size) if heads % n == 0) or 1}; the other GPUs by pipeline or data parallelism",
    )
