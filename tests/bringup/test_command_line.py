"""`ncdiag bringup` as it is called: exit codes, what it prints and where, the hook, and that nothing is left."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .test_start import gone, until

ROOT = Path(__file__).parent.parent.parent
SERVER = """
import http.server, json, os, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *words): pass
    def _say(self, body, code=200):
        raw = json.dumps(body).encode()
        self.send_response(code); self.send_header("Content-Length", str(len(raw))); self.end_headers(); self.wfile.write(raw)
    def do_GET(self):
        self._say({"data": [{"id": "small"}]} if self.path == "/v1/models" else {})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if os.environ.get("BROKEN"):
            return self._say({"error": {"message": "the engine is dead"}}, 500)
        self._say({"choices": [{"text": asked["model"]}], "usage": {"completion_tokens": asked["max_tokens"]}})
print("GPU KV cache size: 65,536 tokens, Maximum concurrency for 8,192 tokens per request: 8.00x", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""
WAITS = """
import os, sys, time
open(sys.argv[1], "w").write(str(os.getpid()))
os.open(sys.argv[2], os.O_RDONLY)
"""


def ncdiag(
    *arguments: str, environment: dict[str, str] | None = None, timeout_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ncdiag", "bringup", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
    )


@contextmanager
def running(arguments: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "ncdiag", "bringup", *arguments],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    """A program called vllm that answers as its server does."""
    program = tmp_path / "vllm"
    program.write_text(f"#!{sys.executable}\n{SERVER}")
    program.chmod(0o755)
    return program


def free_port() -> str:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        return str(server.server_port)


def test_a_server_is_asked_and_summed_up(vllm: Path, tmp_path: Path) -> None:
    hook = tmp_path / "hook.json"
    done = ncdiag(
        "--no-preflight",
        "--then",
        "stop",
        "--hook",
        f"cat > {hook}",
        "--",
        str(vllm),
        "serve",
        "m",
        "--port",
        free_port(),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "GPU KV cache size: 65,536 tokens, Maximum concurrency for 8,192 tokens per request: 8.00x\n"
    assert (
        "READY" in done.stderr
        and "a completion of 4 tokens" in done.stderr
        and "(small)" in done.stderr
        and "65,536 tokens" in done.stderr
    )
    told = json.loads(hook.read_text())
    assert (told["event"], told["outcome"], told["check"]["model"]) == ("ready", "ready", "small")


def test_a_script_that_leaves_its_server_behind_is_followed_to_the_server(vllm: Path) -> None:
    script = vllm.parent / "start.sh"
    script.write_text(f"#!/bin/sh\nnohup {vllm} serve m --port {free_port()} >/dev/null 2>&1 &\n")
    script.chmod(0o755)
    done = ncdiag("--no-preflight", "--then", "stop", "--timeout", "40", "--", str(script))
    assert done.returncode == 0 and "READY" in done.stderr, done.stderr
    assert subprocess.run(["pgrep", "-f", str(vllm)], check=False).returncode == 1


def test_a_server_that_cannot_complete_has_failed(vllm: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = ncdiag(
        "--no-preflight",
        "--format",
        "json",
        "-o",
        str(out),
        "--",
        str(vllm),
        "serve",
        "m",
        "--port",
        free_port(),
        environment={"BROKEN": "1"},
    )
    result: dict[str, Any] = json.loads(out.read_text())
    assert (done.returncode, result["outcome"], result["exit"]) == (1, "failed", 1)
    assert "the engine is dead" in result["check"]["error"]


def test_it_stays_with_a_server_that_is_up_until_that_ends(vllm: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    command = [
        sys.executable,
        "-m",
        "ncdiag",
        "bringup",
        "--no-preflight",
        "--",
        str(vllm),
        "serve",
        "m",
        "--port",
        free_port(),
    ]
    with (
        open(said, "wb") as file,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=file) as process,
    ):
        try:
            assert until(lambda: "READY" in said.read_text(), 40)
            assert process.poll() is None
            servers = subprocess.run(
                ["pgrep", "-f", f"^{sys.executable} {vllm} serve"], capture_output=True, text=True, check=True
            ).stdout.split()
            os.kill(int(servers[0]), signal.SIGKILL)
            assert process.wait(40) == 1
        finally:
            process.kill()
    assert "FAILED" in said.read_text()


def test_a_command_without_an_engine_has_ended_and_did_not_come_up() -> None:
    done = ncdiag("--no-preflight", "--", "sh", "-c", "echo out; echo err >&2")
    assert (done.returncode, done.stdout) == (3, "out\n")
    told = " ".join(done.stderr.split())
    assert "err" in told and "ended with status 0" in told and "no engine was seen" in told
    assert "came up" not in told and "READY" not in told


def test_a_job_of_ranks_that_ends_well_is_finished() -> None:
    place = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    done = ncdiag("--no-preflight", "--", sys.executable, "-c", "import time; time.sleep(5)", environment=place)
    assert done.returncode == 0 and "FINISHED" in done.stderr, done.stderr
    assert " dead" not in done.stderr, "who did its work has ended"


def test_a_server_that_ends_with_status_0_before_it_answers_did_not_come_up(tmp_path: Path) -> None:
    program = tmp_path / "vllm"
    program.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(4)\n")
    program.chmod(0o755)
    done = ncdiag("--no-preflight", "--", str(program), "serve", "m", "--port", free_port())
    assert done.returncode == 3 and "before it was up" in " ".join(done.stderr.split()), done.stderr


@pytest.mark.parametrize("command", ["exec sleep 300", "trap '' TERM; while true; do sleep 1; done"])
def test_the_time_limit_is_kept_and_said_as_it_was_given(command: str) -> None:
    started = time.monotonic()
    done = ncdiag("--no-preflight", "--timeout", "4", "--", "sh", "-c", command)
    assert done.returncode == 1 and "not up within 4 s" in done.stderr, done.stderr
    assert time.monotonic() - started < 15  # 4 s, a look, and the grace of one that does not want to end


def test_a_stall_of_what_is_no_engine_is_said_as_that() -> None:
    done = ncdiag("--no-preflight", "--stall-after", "2", "--on-stall", "stop", "--", "sh", "-c", "sleep 300; true")
    told = " ".join(done.stderr.split())
    assert done.returncode == 1 and "no process of an engine is to be seen below it" in told and "`sleep 300`" in told
    assert "sockets of the ranks" not in told


def test_a_copy_before_the_start_is_work_and_no_stall() -> None:
    copies = "timeout 7 dd if=/dev/zero of=/dev/null bs=64k 2>/dev/null; exit 5"
    done = ncdiag("--no-preflight", "--stall-after", "2", "--on-stall", "stop", "--", "sh", "-c", copies)
    assert done.returncode == 1 and "status 5" in done.stderr and "STALLED" not in done.stderr, done.stderr


def test_the_first_error_of_a_failed_start_is_named_and_not_the_cascade() -> None:
    script = """
echo "(EngineCore pid=7) ERROR RuntimeError: Insufficient space in /dev/shm for shared-memory allocation: 160 MiB required, 64 MiB free."
echo "(APIServer pid=6) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}"
exit 1"""
    done = ncdiag("--no-preflight", "--", "sh", "-c", script)
    assert done.returncode == 1
    told = done.stderr.partition("FAILED")[2]
    assert "the command ended with status 1" in told
    assert told.index("shm-too-small") < told.index("follows from it")


def test_a_stall_is_said_and_stopped_and_nothing_is_left(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    out, bundle = tmp_path / "out.json", tmp_path / "b.tar.gz"
    arguments = [
        "--no-preflight",
        "--stall-after",
        "2",
        "--on-stall",
        "stop",
        "--format",
        "json",
        "-o",
        str(out),
        "--",
        sys.executable,
        "-c",
        WAITS,
        str(tmp_path / "pid"),
        str(pipe),
    ]
    done = ncdiag(*arguments)
    result = json.loads(out.read_text())
    assert (done.returncode, result["outcome"]) == (1, "stalled")
    assert "waits for a pipe" in result["causes"][0]["summary"]
    assert gone(int((tmp_path / "pid").read_text()))
    assert not bundle.exists()


IDLE = """
import http.server, os, sys, time
print("listening", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
BUSY_WITH_NOTHING = """
import os, threading
print("waiting", flush=True)
lock = threading.Lock(); lock.acquire(); lock.acquire()
"""
RANKS = 'for rank in 0 1; do RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29999 "$0" -c "$1" & done; wait'


@pytest.mark.parametrize(("program", "outcome"), [(IDLE, "timeout"), (BUSY_WITH_NOTHING, "stalled")])
def test_a_service_of_ranks_that_waits_for_requests_does_not_stall(tmp_path: Path, program: str, outcome: str) -> None:
    out = tmp_path / "r.json"
    limits = ["--no-preflight", "--stall-after", "4", "--on-stall", "stop", "--timeout", "18"]
    ranks = RANKS.replace("29999", free_port())  # the other one of these may run at the same time
    done = ncdiag(*limits, "--format", "json", "-o", str(out), "--", "sh", "-c", ranks, sys.executable, program)
    assert json.loads(out.read_text())["outcome"] == outcome, done.stderr
    said = "and that is no stall: rank 0 "
    assert (said in done.stderr) == (outcome == "timeout"), done.stderr


LOOPS = """
import os, socket, time
if os.environ["RANK"] == "1":
    with socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"]))) as door:
        peer = door.accept()[0]
    while True: pass
while True:
    try:
        with socket.create_connection(("127.0.0.1", int(os.environ["MASTER_PORT"]))) as first:
            first.recv(1)
    except ConnectionRefusedError:
        time.sleep(0.1)
"""


def test_a_rank_that_only_computes_is_told_and_is_no_stall(tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    limits = ["--no-preflight", "--stall-after", "2", "--on-stall", "stop", "--timeout", "20"]
    ranks = RANKS.replace("29999", free_port())
    done = ncdiag(*limits, "--format", "json", "-o", str(out), "--", "sh", "-c", ranks, sys.executable, LOOPS)
    assert json.loads(out.read_text())["outcome"] == "timeout", done.stderr
    assert done.stderr.count("nothing has moved but the CPU of rank 1 (") == 1, done.stderr


def test_a_command_that_could_not_start_is_no_dead_rank() -> None:
    program = [sys.executable, "/nonexistent/train.py"]
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    script = 'sleep 3; "$0" "$1"'
    done = ncdiag("--no-preflight", "--", "sh", "-c", script, *program, environment=place)
    told = " ".join(done.stderr.partition("FAILED")[2].split())
    assert done.returncode == 1 and "could not start" in told and "can't open file" in told, done.stderr
    assert "rank-died" not in told and "look at that name" in told


def test_a_rank_that_has_just_ended_is_said_as_that(tmp_path: Path) -> None:
    ranks = RANKS.replace('"$1" &', '"$1" $rank &').replace("; wait", "; sleep 100 & wait")
    ends = "import sys, time; time.sleep(4 if sys.argv[1] == '1' else 100)"
    limits = ["--no-preflight", "--stall-after", "40", "--on-stall", "stop", "--timeout", "30"]
    done = ncdiag(*limits, "--", "sh", "-c", ranks, sys.executable, ends)
    assert done.returncode == 1, done.stderr
    assert "rank 1 has ended" in done.stderr and "nothing has moved for" not in done.stderr, done.stderr


def test_a_server_without_completions_is_up_by_its_health(vllm: Path) -> None:
    arguments = ["--no-preflight", "--then", "stop", "--ready-when", "health"]
    done = ncdiag(*arguments, "--", str(vllm), "serve", "m", "--port", free_port(), environment={"BROKEN": "1"})
    assert done.returncode == 0 and "READY" in done.stderr, done.stderr


def test_a_bundle_of_a_stall_is_judged_again(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    bundle = tmp_path / "b.tar.gz"
    arguments = [
        "--no-preflight",
        "--stall-after",
        "2",
        "--on-stall",
        "bundle",
        "--bundle",
        str(bundle),
        "--timeout",
        "9",
        "--",
        sys.executable,
        "-c",
        WAITS,
        str(tmp_path / "pid"),
        str(pipe),
    ]
    done = ncdiag(*arguments)
    assert done.returncode == 1 and "saved" in done.stderr and "TIMEOUT" in done.stderr
    again = subprocess.run(
        [sys.executable, "-m", "ncdiag", "diagnose", str(bundle)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert "waits for a pipe" in " ".join(again.stdout.split())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_however_it_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    pipe, pid = tmp_path / "pipe", tmp_path / "pid"
    os.mkfifo(pipe)
    with running(["--no-preflight", "--", sys.executable, "-c", WAITS, str(pid), str(pipe)]) as process:
        assert until(lambda: pid.exists() and pid.read_text())
        process.send_signal(number)
        code = process.wait(30)
    assert code == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    assert until(lambda: gone(int(pid.read_text())))


def test_what_is_attached_to_is_left_alone(tmp_path: Path) -> None:
    pipe, pid = tmp_path / "pipe", tmp_path / "pid"
    os.mkfifo(pipe)
    theirs = subprocess.Popen([sys.executable, "-c", WAITS, str(pid), str(pipe)])
    try:
        assert until(lambda: pid.exists() and pid.read_text())
        done = ncdiag("--attach", str(theirs.pid), "--stall-after", "2", "--on-stall", "stop")
        assert done.returncode == 1 and "waits for a pipe" in done.stderr
        assert theirs.poll() is None
    finally:
        theirs.kill()
        theirs.wait()


@pytest.mark.parametrize("reaped", [False, True])
def test_what_is_attached_to_and_ends_has_not_failed(reaped: bool) -> None:
    """A parent that waits for it hears its status; before that, the kernel tells it to root."""
    theirs = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(4)"])
    if reaped:
        threading.Thread(target=theirs.wait, daemon=True).start()
    try:
        done = ncdiag("--attach", str(theirs.pid), "--stall-after", "20", "--timeout", "30")
    finally:
        theirs.kill()
        theirs.wait()
    assert done.returncode == 3 and "FAILED" not in done.stderr, done.stderr
    known = not reaped and os.geteuid() == 0
    assert ("with status 0" in done.stderr) == known and ("only its parent knows" in done.stderr) != known


def test_log_files_alone_show_where_a_start_stands(tmp_path: Path) -> None:
    log = tmp_path / "node0.log"
    log.write_text(
        "(Worker_TP0 pid=31) INFO Starting to load model /m...\n(Worker_TP1 pid=32) INFO Starting to load model /m...\n"
    )

    def goes_on() -> None:
        time.sleep(3)
        with open(log, "a") as file:
            file.write("(APIServer pid=30) INFO:     Application startup complete.\n")

    threading.Thread(target=goes_on, daemon=True).start()
    done = ncdiag("--follow", str(log), "--timeout", "30", "--stall-after", "20")
    assert done.returncode == 0, done.stderr
    assert "load-weights" in done.stderr and "READY" in done.stderr


@pytest.mark.parametrize(
    ("lines", "code", "words"),
    [
        (["INFO:     Application startup complete."], 0, ["engine ready", "READY"]),
        (
            [
                "(EngineCore pid=7) RuntimeError: Insufficient space in /dev/shm for shared-memory allocation: 160 MiB required, 64 MiB free.",
                "(APIServer pid=6) RuntimeError: Engine core initialization failed. See root cause above.",
            ],
            1,
            ["FAILED", "shm-too-small", "vllm.log:2"],
        ),
    ],
)
def test_what_a_log_holds_already_is_judged_at_once(
    tmp_path: Path, lines: list[str], code: int, words: list[str]
) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("\n".join(["INFO 01-02 10:00:00 [api_server.py:1] vLLM API server version 0.11.0", *lines, ""]))
    os.utime(log, (time.time() - 60,) * 2)
    done = ncdiag("--follow", str(log), timeout_s=30)
    assert done.returncode == code, done.stderr
    assert all(word in done.stderr for word in words) and "output of the command" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one of"),
        (["--attach", "999999999"], "no process 999999999 here: it has ended, or the number is from another container"),
        (["--", "/nonexistent/vllm"], "cannot run /nonexistent/vllm: there is no such file; look at the path"),
        (["--", "no-such-engine", "serve", "m"], "it is not in PATH; activate the environment that has it"),
        (["--", "/etc"], "it is a folder"),
        (["--nodes", "slurm:1", "--", "true"], "bringup watches local and ssh"),
        (["--format", "json", "--", "true"], "needs -o FILE or --quiet-child FILE"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str) -> None:
    done = ncdiag("--no-preflight", *arguments)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_without_ray_there_is_no_cluster_to_watch_and_the_way_to_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['ray'] = None\n")
    done = ncdiag("--ray", environment={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2 and "pip install 'ncdiag[ray]'" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("first_line", "mode", "message"),
    [
        ("#!/nonexistent/python\n", 0o755, "the interpreter that its first line (#!) names is not there"),
        ("#!/bin/sh\n", 0o644, "make it executable (chmod +x)"),
    ],
)
def test_a_script_that_cannot_run_is_told_why(tmp_path: Path, first_line: str, mode: int, message: str) -> None:
    script = tmp_path / "start"
    script.write_text(first_line)
    script.chmod(mode)
    done = ncdiag("--no-preflight", "--", str(script))
    assert done.returncode == 2 and message in " ".join(done.stderr.split()), done.stderr
