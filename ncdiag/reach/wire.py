"""The two sides of one test: an agent that answers on its own address, and a peer that tries to reach it. Travels to nodes.

Every message carries the run's token; who does not know it gets no answer. TCP: a greeting, the answer with the node's number, then
BULK bytes each way. UDP with DF set: the largest datagram that arrives tells the path MTU.
Source: ip(7) IP_MTU_DISCOVER; tcp(7).
"""

from __future__ import annotations

import errno
import hmac
import os
import select
import socket
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

BULK = 1 << 17
"""Bytes each way: far more than one packet, so that a path which swallows full-sized packets shows."""

CONNECT_S = 1.3
"""Longer than the first retransmission of a lost SYN (1 s)."""

BULK_S = 0.8
PAIR_S = CONNECT_S + BULK_S + 1.0
"""Longer than all tests over TCP and UDP of one pair, which run at the same time."""

DATAGRAM_S = 0.15
HEADERS = 28
"""IPv4 and UDP header in front of a datagram; 48 for IPv6."""

SIZES = (9000, 4200, 1500, 1400, 1280)
"""MTUs that are tried below the interface's own."""

IP_MTU_DISCOVER, IPV6_MTU_DISCOVER, PMTUDISC_PROBE = 10, 23, 3

GONE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)
ANSWERS = (errno.ECONNRESET, errno.ECONNABORTED)
"""Of a peer on the same machine, which answers within the call."""


def family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


class Server:
    """Listeners on one address until `stop`. `number`: what this node is called in its answers.

    `rdma`: called with the connection and the number of a node that wants RDMA tested.
    """

    def __init__(self, token: str, number: int, address: str, rdma: Callable[[socket.socket, int], None]) -> None:
        self._token = token.encode()
        self._rdma = rdma
        self._number = number
        self._address = address
        self._stopped = threading.Event()
        self.ports: Dict[int, str] = {}
        """Port -> `listening`, or why not."""

    def listen(self, port: int) -> bool:
        try:
            stream = socket.socket(family(self._address), socket.SOCK_STREAM)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stream.bind((self._address, port))
            stream.listen(64)
        except OSError as error:
            self.ports[port] = "in use" if error.errno == errno.EADDRINUSE else str(error.strerror)
            return False
        self.ports[port] = "listening"
        threading.Thread(target=self._accept, args=(stream,), daemon=True).start()
        return True

    def answer_datagrams(self, port: int) -> None:
        """Nothing where another program has the port: the path's MTU to this node is then not measured."""
        datagrams = socket.socket(family(self._address), socket.SOCK_DGRAM)
        try:
            datagrams.bind((self._address, port))
        except OSError:
            datagrams.close()
            return
        threading.Thread(target=self._echo, args=(datagrams,), daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _accept(self, stream: socket.socket) -> None:
        with stream:
            while not self._stopped.is_set():
                if select.select([stream], [], [], 0.2)[0]:
                    try:
                        connection = stream.accept()[0]
                    except OSError:
                        continue
                    threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.settimeout(CONNECT_S + BULK_S)
                words = _line(connection).split()
                if len(words) < 2 or not hmac.compare_digest(words[0], self._token):
                    return
                if words[1] == b"rdma":
                    self._rdma(connection, int(words[2]))
                    return
                connection.sendall(b"%s %d\n" % (self._token, self._number))
                if int(words[1]):
                    _take(connection, int(words[1]))
                    connection.sendall(b"." * int(words[1]))
            except (OSError, ValueError, IndexError):
                return

    def _echo(self, datagrams: socket.socket) -> None:
        with datagrams:
            while not self._stopped.is_set():
                if select.select([datagrams], [], [], 0.2)[0]:
                    try:
                        data, sender = datagrams.recvfrom(1 << 16)
                        words = data.split(b" ", 1)
                        if hmac.compare_digest(words[0], self._token):
                            datagrams.sendto(b"%s %d" % (self._token, len(data)), sender)
                    except OSError:
                        continue


def connect(token: str, own: str, peer: str, port: int, number: int, *, bulk: int = BULK) -> Tuple[str, str]:
    """`(outcome, detail)`: ok, refused, dropped, unreachable, reset, stuck (small passes, large does not), stranger, busy (another program).

    Or `local`, with the error's name: this node's own kernel does not let it out.
    """
    started = time.monotonic()
    stream = socket.socket(family(peer), socket.SOCK_STREAM)
    with stream:
        failed = _connected(stream, own, peer, port)
        if failed is not None:
            return failed
        try:
            stream.sendall(b"%s %d\n" % (token.encode(), bulk))
            words = _line(stream).split()
        except OSError as error:
            return ("busy", "") if isinstance(error, socket.timeout) else ("reset", str(error))
        if len(words) != 2 or words[0] != token.encode():
            return "busy", ""
        if int(words[1]) != number:
            return "stranger", words[1].decode()
        try:
            stream.settimeout(BULK_S)
            threading.Thread(target=_send, args=(stream, bulk), daemon=True).start()
            _take(stream, bulk)
        except OSError as error:
            return "stuck", "%d bytes each way: %s" % (bulk, error)
    return "ok", "%.1f ms" % ((time.monotonic() - started) * 1000)


def dial(token: str, own: str, peer: str, port: int, number: int) -> socket.socket:
    """A connection on which RDMA is tested. Raises OSError."""
    stream = socket.socket(family(peer), socket.SOCK_STREAM)
    try:
        stream.settimeout(CONNECT_S)
        stream.bind((own, 0))
        stream.connect((peer, port))
        stream.sendall(b"%s rdma %d\n" % (token.encode(), number))
    except OSError:
        stream.close()
        raise
    return stream


def knock(own: str, peer: str, port: int) -> Tuple[str, str]:
    """`(outcome, detail)` of a connection to a port on which another program listens: ok, refused, dropped, unreachable, reset, local."""
    with socket.socket(family(peer), socket.SOCK_STREAM) as stream:
        return _connected(stream, own, peer, port) or ("ok", "")


def path_mtu(token: str, own: str, peer: str, port: int, mtu: int) -> Optional[int]:
    """The largest of `mtu` and SIZES that a datagram with DF set gets through with; None when none does."""
    overhead = HEADERS if family(peer) == socket.AF_INET else 48
    datagrams = socket.socket(family(peer), socket.SOCK_DGRAM)
    with datagrams:
        try:
            level, option = (
                (socket.IPPROTO_IP, IP_MTU_DISCOVER)
                if family(peer) == socket.AF_INET
                else (socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER)
            )
            datagrams.setsockopt(level, option, PMTUDISC_PROBE)
            datagrams.bind((own, 0))
        except OSError:
            return None
        for size in [mtu] + [size for size in SIZES if size < mtu]:
            if _passes(datagrams, token.encode(), (peer, port), size - overhead):
                return size
    return None


def _passes(datagrams: socket.socket, token: bytes, target: Tuple[str, int], size: int) -> bool:
    for _attempt in (0, 1):
        try:
            datagrams.sendto((token + b" ").ljust(size, b"."), target)
            if select.select([datagrams], [], [], DATAGRAM_S)[0] and datagrams.recv(4096) == b"%s %d" % (token, size):
                return True
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                return False
    return False


def _connected(stream: socket.socket, own: str, peer: str, port: int) -> Optional[Tuple[str, str]]:
    """None where it is connected, else `(outcome, detail)`. An answer takes its time: what fails at once, this node's own kernel refuses."""
    try:
        stream.bind((own, 0))
    except OSError as error:
        return "local", _symbol(error.errno or 0)
    stream.setblocking(False)
    code = stream.connect_ex((peer, port))
    at_once = code != errno.EINPROGRESS
    if not at_once:
        if not select.select([], [stream], [], CONNECT_S)[1]:
            return "dropped", ""
        code = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    stream.settimeout(CONNECT_S)
    return _failed(code, at_once) if code else None


def _failed(code: int, at_once: bool) -> Tuple[str, str]:
    if code == errno.ETIMEDOUT:
        return "dropped", ""
    if code == errno.ECONNREFUSED:
        return "refused", ""
    if at_once and code not in ANSWERS:
        return "local", _symbol(code)
    return "unreachable" if code in GONE else "reset", os.strerror(code)


def _symbol(code: int) -> str:
    return errno.errorcode.get(code, str(code))


def _line(stream: socket.socket) -> bytes:
    """Up to the line's end; raises OSError when it does not come."""
    data = b""
    while not data.endswith(b"\n"):
        part = stream.recv(1)
        if not part or len(data) > 200:
            return data
        data += part
    return data


def _take(stream: socket.socket, count: int) -> None:
    while count:
        part = stream.recv(min(count, 1 << 16))
        if not part:
            raise OSError("the connection ended early")
        count -= len(part)


def _send(stream: socket.socket, count: int) -> None:
    try:
        stream.sendall(b"." * count)
    except OSError:
        return


def several(work: List[Any], limit_s: float) -> List[Any]:
    """The results of functions run at the same time, in their order; None of one that raised or took longer than `limit_s`."""
    results: List[Any] = [None] * len(work)

    def run(index: int) -> None:
        results[index] = work[index]()

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(work))]
    for thread in threads:
        thread.start()
    end = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return results
