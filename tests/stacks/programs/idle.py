"""Programs of several processes that form no group: FAULT says which. Prints `ready` when all stand where they are meant to."""

# mypy: ignore-errors
import concurrent.futures
import ctypes
import fcntl
import multiprocessing
import os
import pathlib
import queue
import selectors
import signal
import socket
import sys
import threading
import time

PLACE = pathlib.Path(os.environ["PROGRAM_DIR"])
CONTEXT = multiprocessing.get_context(os.environ.get("START", "fork"))


def bound():
    """No process outlives its parent."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def ready(seconds=0.4):
    time.sleep(seconds)
    print("ready", flush=True)


def works():
    value = 1
    while value:
        value = value % 7 + 1


def pool_sleeps():
    with CONTEXT.Pool(3, bound) as pool:
        pool.map(abs, range(9))
        ready()
        time.sleep(3600)


def pool_reads():
    reader, writer = os.pipe()
    with CONTEXT.Pool(3, bound) as pool:
        pool.map(abs, range(9))
        ready()
        os.read(reader, 1)
    os.close(writer)


def pool_works():
    with CONTEXT.Pool(3, bound) as pool:
        pool.map(abs, range(9))
        ready()
        works()


def pool_task():
    with CONTEXT.Pool(3, bound) as pool:
        pool.map(abs, range(9))
        result = pool.apply_async(time.sleep, (3600,))
        ready()
        result.get()


def pool_lost():
    with CONTEXT.Pool(2, bound) as pool:
        result = pool.apply_async(killed)
        ready(1.0)
        result.get()


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def manager():
    with CONTEXT.Manager() as shared:
        nothing = shared.Queue()
        ready()
        nothing.get()


def executor():
    with concurrent.futures.ProcessPoolExecutor(3, CONTEXT, bound) as pool:
        list(pool.map(abs, range(9)))
        ready()
        time.sleep(3600)


def executor_works():
    with concurrent.futures.ProcessPoolExecutor(3, CONTEXT, bound) as pool:
        list(pool.map(abs, range(9)))
        ready()
        works()


def threads():
    pool = concurrent.futures.ThreadPoolExecutor(3)
    list(pool.map(abs, range(9)))
    ready()
    threading.Event().wait()


def thread_queue():
    tasks = queue.Queue()
    workers = [threading.Thread(target=tasks.get, daemon=True) for _ in range(3)]
    [worker.start() for worker in workers]
    ready()
    [worker.join() for worker in workers]


def own_lock():
    held = threading.Lock()
    held.acquire()
    ready()
    held.acquire()


def prefork():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        for _ in range(3):
            if os.fork() == 0:
                bound()
                waiting = selectors.DefaultSelector()
                waiting.register(server, selectors.EVENT_READ)
                waiting.select()
                os._exit(0)
        ready()
        os.wait()


def server_with_a_request():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        connection, _ = server.accept()
        waiting = selectors.DefaultSelector()
        waiting.register(connection, selectors.EVENT_READ)
        ready()
        waiting.select()


def server_that_is_stuck():
    import http.server

    held = threading.Lock()
    held.acquire()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            held.acquire()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    connection = socket.create_connection(server.server_address)
    connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
    threading.Thread(target=ready, args=(0.5,)).start()
    server.serve_forever()


def lonely_loop():
    ready()
    works()


def never_ends(lock):
    bound()
    lock.acquire()
    lock.acquire()


def joins_a_stuck_child():
    child = CONTEXT.Process(target=never_ends, args=(threading.Lock(),))
    child.start()
    ready()
    child.join()


def take(tasks):
    bound()
    while tasks.get() is not None:
        pass


def joins_idle_workers():
    tasks = CONTEXT.Queue()
    workers = [CONTEXT.Process(target=take, args=(tasks,)) for _ in range(2)]
    [worker.start() for worker in workers]
    ready()
    [worker.join() for worker in workers]


def produce(tasks):
    bound()
    while True:
        tasks.put(1)


def full_queue():
    tasks = CONTEXT.Queue(4)
    for _ in range(2):
        CONTEXT.Process(target=produce, args=(tasks,)).start()
    ready()
    time.sleep(3600)


def loader():
    import torch.utils.data

    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 1000

        def __getitem__(self, index):
            return index

    batches = iter(torch.utils.data.DataLoader(Numbers(), 2, num_workers=2, worker_init_fn=lambda number: bound()))
    next(batches)
    ready(1.0)
    time.sleep(3600)


def child(wait):
    if os.fork() == 0:
        bound()
        wait()
        os._exit(0)


def opened(name):
    return open(PLACE / name, "w")


def file_lock():
    def hold():
        kept = opened("a.lock")
        fcntl.flock(kept, fcntl.LOCK_EX)
        time.sleep(3600)

    def want():
        kept = opened("a.lock")
        fcntl.flock(kept, fcntl.LOCK_EX)

    child(hold)
    time.sleep(0.3)
    child(want)
    child(want)
    ready()
    os.wait()


def polled_lock():
    import filelock

    def hold():
        with filelock.FileLock(PLACE / "model.lock"):
            time.sleep(3600)

    def want():
        with filelock.FileLock(PLACE / "model.lock"):
            pass

    child(hold)
    time.sleep(0.3)
    child(want)
    child(want)
    ready()
    os.wait()


def record_lock():
    def hold():
        kept = opened("a.lock")
        fcntl.lockf(kept, fcntl.LOCK_EX)
        time.sleep(3600)

    def want():
        kept = opened("a.lock")
        fcntl.lockf(kept, fcntl.LOCK_EX)

    child(hold)
    time.sleep(0.3)
    child(want)
    ready()
    os.wait()


def ring():
    def one(mine, other):
        def run():
            kept = opened(mine)
            fcntl.flock(kept, fcntl.LOCK_EX)
            time.sleep(0.4)
            wanted = opened(other)
            fcntl.flock(wanted, fcntl.LOCK_EX)

        return run

    child(one("a.lock", "b.lock"))
    child(one("b.lock", "a.lock"))
    ready(1.0)
    os.wait()


def hold_for_ever(lock):
    bound()
    lock.acquire()
    time.sleep(3600)


def want_for_ever(lock):
    bound()
    with lock:
        pass


def shared_lock():
    lock = CONTEXT.Lock()
    CONTEXT.Process(target=hold_for_ever, args=(lock,)).start()
    time.sleep(0.5)
    wanting = [CONTEXT.Process(target=want_for_ever, args=(lock,)) for _ in range(2)]
    [process.start() for process in wanting]
    ready()
    [process.join() for process in wanting]


if __name__ == "__main__":
    sys.stdin.close()
    globals()[os.environ["FAULT"]]()
