"""No torch: ranks that serve. FAULT says for what each of them waits, and how."""

# mypy: ignore-errors
import asyncio
import http.server
import multiprocessing
import os
import select
import socket
import threading

import group


def server():
    return http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)


def http_server():
    server().serve_forever()


def http_thread():
    thread = threading.Thread(target=server().serve_forever, daemon=True)
    thread.start()
    thread.join()


def accepts():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.accept()


def selects():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        select.select([listening], [], [])


def in_asyncio():
    async def serve():
        async with await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0) as serving:
            await serving.serve_forever()

    asyncio.run(serve())


def queue():
    multiprocessing.Queue().get()


def one_of_them():
    if group.RANK == 0:
        http_server()
    multiprocessing.Queue().get()


def client():
    """It listens too, and waits for an answer instead of a request."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        async def ask():
            reader, _ = await asyncio.open_connection(*listening.getsockname())
            await reader.read()

        asyncio.run(ask())


group.here()
globals()[os.environ["FAULT"]]()
