"""Which node, NIC or path makes it slow: disjoint pairs in rounds, suspects tested again with known-good partners. Pure: no clock, no machine.

    search = Search(nodes, rails={"gpu07": ("mlx5_0", "mlx5_1")}, seed=1)
    while tests := search.next_round():
        search.take({test: gbytes_s or None for test in tests})     # None: it got stuck and was given up
    search.verdicts                                                  # who is bad, and in what way

A clean pair clears both of its nodes, a slow pair makes both suspect; a suspect that is slow with two known-good partners is bad. Bad nodes are
then tried with each other (good among themselves: what they share is bad, not they), over one NIC at a time, and slow pairs of two good nodes
once more with each other (the path between them).

`search` carries it out, `board` holds what is known; `few`, `screen`, `retest` and `noisy` find the bad nodes, `origin` what about them is bad,
`conclude` says it.
"""
