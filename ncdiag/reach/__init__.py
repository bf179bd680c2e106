"""Who reaches whom: nodes tested in rounds of disjoint pairs, and what the failures have in common."""
