"""The last rank comes to the store and never to the full mesh: a lock holds it."""

# mypy: ignore-errors
import datetime
import os
import threading

import group
import torch.distributed

if group.RANK == group.WORLD - 1:
    store = torch.distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), group.WORLD, False,
                                      datetime.timedelta(seconds=600))
    held = threading.Lock()
    held.acquire()
    group.here()
    held.acquire()
group.here()
group.join()
