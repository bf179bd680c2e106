"""Rank states -> verdict: which rank holds up the others, and why (pure)."""

from ncdiag.hang.infer import infer
from ncdiag.hang.verdict import Fold, RankVerdict, Verdict, Wait

__all__ = ["Fold", "RankVerdict", "Verdict", "Wait", "infer"]
