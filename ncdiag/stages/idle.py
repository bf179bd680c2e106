"""Workers that wait for their next task, and servers that wait for requests: nobody waits for them, so they are not late.

Source: CPython multiprocessing/pool.py, concurrent/futures/process.py, socketserver.py (3.8 to 3.14); torch/utils/data (2.1 to 2.14);
loky; gunicorn 20 to 23; uvicorn 0.15 to 0.38; waitress.
"""

from __future__ import annotations

from ncdiag.stages.match import Rule
from ncdiag.stages.order import ORDERS

_QUEUE = "get@multiprocessing/queues.py"

TASKS = (
    Rule("ready", ORDERS, (_QUEUE, "worker@multiprocessing/pool.py"), "the next task of its pool"),
    Rule("ready", ORDERS, (_QUEUE, "_process_worker@concurrent/futures/process.py"), "the next task of its executor"),
    Rule("ready", ORDERS, (_QUEUE, "_process_worker@loky/process_executor.py"), "the next task of its executor"),
    Rule("ready", ORDERS, (_QUEUE, "_worker_loop@torch/utils/data/_utils/worker.py"), "the next batch to load"),
    Rule("ready", ORDERS, ("serve_forever@multiprocessing/managers.py",), "what its program asks of it"),
)
"""A process of a pool at the queue of its tasks, or one that keeps what others share."""

REQUESTS = (
    Rule("ready", ORDERS, ("wait@gunicorn/workers/sync.py",), "requests"),
    Rule("ready", ORDERS, ("select@selectors.py", "run@gunicorn/workers/gthread.py"), "requests"),
    Rule("ready", ORDERS, ("sleep@gunicorn/arbiter.py",), "signals, and its workers to end"),
    Rule("ready", ORDERS, ("select@selectors.py", "run@uvicorn/server.py"), "requests"),
    Rule("ready", ORDERS, ("~uv__io_poll", "run@uvicorn/server.py"), "requests"),
    Rule("ready", ORDERS, ("select@selectors.py", "serve_forever@socketserver.py"), "requests"),
    Rule("ready", ORDERS, ("poll@waitress/wasyncore.py",), "requests"),
)
"""A server whose main thread waits for events; what its other threads do is another matter."""

RULES = TASKS + REQUESTS
