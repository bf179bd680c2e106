"""How likely noise alone makes values as low as these: ranks among the values of healthy pairs, which hold for noise of any shape."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

SUSPECT, CLEARED, CERTAIN = 0.05, 0.1, 0.0002
"""How likely a healthy node would have values as low: below the first a node says nothing about what is usual, above the second it is cleared;
below the third over the square of the number of nodes it is bad, so that hardly one run in a thousand blames anybody who is not, however many
nodes there are."""
BEST = 3
"""How many of the best values are held against all others' noise."""


def chance(ratios: Sequence[float], population: Sequence[float]) -> float:
    """How likely a healthy node has values as low as these together, from their ranks in the (sorted) population: by Fisher's method, or by its
    best ones, whichever is least. Noise slows a healthy pair now and then; a bad node has hardly ever a good value, but with others that share
    what is slow."""
    if not ratios:
        return 1.0
    size = len(population) + 1
    ranks = sorted(((bisect.bisect_right(population, ratio) + 1) / (size + 1) for ratio in ratios), reverse=True)
    half = -sum(map(math.log, ranks))
    term = total = math.exp(-half)  # the chi-squared distribution with an even number of degrees of freedom
    for index in range(1, len(ranks)):
        term *= half / index
        total += term
    count = len(ranks)
    for better, rank in enumerate(ranks[:BEST]):  # all but `better` of them are at most this
        total = min(total, sum(math.comb(count, n) * (1 - rank) ** n * rank ** (count - n) for n in range(better + 1)))
    return float(total)
