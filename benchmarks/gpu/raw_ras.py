"""NCCL RAS's own words, as text and as JSON: raw_ras.py FOLDER writes ras.txt and ras.json there. Only asks; says so where nobody listens."""

from __future__ import annotations

import socket
import sys
from pathlib import Path


def ask(*lines: str) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", 28028), 2) as link:
            link.settimeout(12)
            link.sendall("".join(line + "\n" for line in lines).encode())
            answer = b""
            while piece := link.recv(65536):
                answer += piece
            return answer
    except OSError as error:
        return f"# {error}\n".encode()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "ras.json").write_bytes(ask("CLIENT PROTOCOL 2", "TIMEOUT 2", "SET FORMAT json", "STATUS"))
    (folder / "ras.txt").write_bytes(ask("CLIENT PROTOCOL 2", "TIMEOUT 2", "VERBOSE STATUS"))
