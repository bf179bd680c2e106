"""What stands on a node during a bandwidth run: `agent` forks one process a rank, and each of these runs `worker`.

Shipped as source to machines that have no ncdiag, into the engine's interpreter: imports nothing but torch, the standard library (Python 3.8) and
each other. A message of a rank is a dictionary that goes to `emit`:

`{"event": "store", "port"}` (rank 0: where the others meet), `{"event": "stage", "stage"}` (how far it is), `{"event": "row", …}` (one
operation at one size), `{"event": "self", …}` (what this machine does without the network), `{"event": "done", "counters"}`.
"""
