"""Files are recognised by content, read compressed, from folders and standard input; nothing a file holds breaks the rest."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import json
import lzma
import os
import random
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ncdiag.logs.diagnose import diagnose, of_streams
from ncdiag.logs.intake import Intake, Stream

SHM = b"h:1:2 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-Ab to 9637892 bytes\n"
CASES = sorted((Path(__file__).parent / "cases").glob("*.log"))


def first(*paths: Path) -> str:
    return diagnose([str(path) for path in paths]).verdict.causes[0].cause


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, bytes], ids=["gz", "bz2", "xz", "plain"])
def test_compressed_under_any_name(tmp_path: Path, pack) -> None:
    path = tmp_path / "notes.dat"
    path.write_bytes(pack(SHM))
    assert first(path) == "shm-too-small"


def test_zstd_without_its_reader_is_a_note(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + b"\0" * 20)
    found = diagnose([str(path)])
    assert found.verdict.causes[0].cause == "unresolved" and found.notes


def test_cut_archive_is_read_up_to_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "x.log.gz"
    noise = random.Random(1).randbytes(200_000)
    path.write_bytes(gzip.compress(SHM + noise)[:-1000])
    found = diagnose([str(path)])
    assert found.verdict.causes[0].cause == "shm-too-small" and "unfinished" in found.notes[0]


def test_folder_with_rotated_binary_and_missing(tmp_path: Path) -> None:
    (tmp_path / "node0").mkdir()
    (tmp_path / "node0" / "vllm.log.1").write_bytes(SHM)
    (tmp_path / "node0" / "core").write_bytes(b"\x7fELF" + b"\0" * 100)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    found = diagnose([str(tmp_path), str(tmp_path / "absent.log")])
    assert found.verdict.causes[0].cause == "shm-too-small"
    assert found.verdict.causes[0].evidence[0].source == os.path.join("node0", "vllm.log.1")
    assert any("core" in note for note in found.notes) and any("absent.log" in note for note in found.notes)


def test_unreadable_file_is_a_note(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(SHM)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root reads everything")
    assert Intake().streams([str(path)]) is not None and diagnose([str(path)]).notes


def test_standard_input_and_exit_codes() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "ncdiag", "diagnose", "-", "--format", "json"],
        input=SHM,
        capture_output=True,
        check=False,
    )
    data = json.loads(run.stdout)
    assert run.returncode == 1 == data["exit"] and data["schema"] == 1 and data["command"] == "diagnose"
    cause = data["causes"][0]
    assert cause["cause"] == "shm-too-small" and cause["confidence"] == "sure" and cause["playbook"] == "shm-too-small"
    assert cause["evidence"][0] == {"source": "stdin", "text": SHM.decode().strip(), "line": 1}
    assert {"ranks", "communicators", "next", "notes"} <= set(data)


def test_nothing_to_read_is_a_usage_error(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "ncdiag", "diagnose", str(tmp_path / "absent")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2 and "no such file" in run.stderr


def test_text_shows_verdict_evidence_and_no_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(
        b"\x1b[31mh:1:2 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-\x07Ab to 9637892 bytes\x1b[0m\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "ncdiag", "diagnose", str(path)], capture_output=True, text=True, check=False
    )
    assert (
        run.stdout.startswith("sure     shm-too-small")
        and "x.log:1" in run.stdout
        and "ncdiag playbook run shm-too-small" in run.stdout
    )
    assert "\x1b" not in run.stdout and "\x07" not in run.stdout


def test_secrets_in_evidence_are_masked(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"HF_TOKEN=hf_abcdefghijklmnopqrst OSError: [Errno 28] No space left on device: '/data'\n")
    run = subprocess.run(
        [sys.executable, "-m", "ncdiag", "diagnose", "--format", "json", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "disk-full" in run.stdout and "hf_abcdefgh" not in run.stdout


def test_pyspy_json(tmp_path: Path) -> None:
    def thread(pid: int, *frames: str) -> dict[str, object]:
        return {
            "pid": pid,
            "thread_id": pid,
            "thread_name": "MainThread",
            "os_thread_id": pid,
            "active": False,
            "owns_gil": False,
            "frames": [
                {"name": frame.split(" ")[0], "filename": frame.split(" ")[1], "short_filename": None, "line": 1}
                for frame in frames
            ],
        }

    for pid in (11, 12):
        (tmp_path / f"{pid}.json").write_text(
            json.dumps([thread(pid, "all_reduce torch/distributed/distributed_c10d.py", "main /app/train.py")])
        )
    (tmp_path / "13.json").write_text(
        json.dumps(
            [thread(13, "acquire /usr/lib/python3.12/threading.py", "flush /app/tracking.py", "main /app/train.py")]
        )
    )
    causes = diagnose([str(tmp_path)]).verdict.causes
    assert causes[0].cause == "rank-stuck-outside-collective" and causes[0].where["pid"] == 13


def test_topology_dump(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(
        '<system version="1"><cpu numaid="0" affinity="f" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85"></cpu></system>'
    )
    (tmp_path / "broken").write_text('<system version="1"><cpu numaid=')
    assert diagnose([str(tmp_path)]).verdict.causes[0].cause in ("unresolved", "healthy", "topology-file-error")


@pytest.mark.parametrize("cut", [True, False])
def test_a_dump_that_is_cut_off_or_names_no_network_is_not_healthy(tmp_path: Path, cut: bool) -> None:
    text = '<system version="1"><cpu numaid="0"><pci busid="0000:0f:00.0" class="0x030200"><gpu dev="0" sm="90" rank="0"/></pci></cpu></system>'
    (tmp_path / "t.xml").write_text(text[:-30] if cut else text)
    found = diagnose([str(tmp_path)])
    assert found.verdict.causes[0].cause == "unresolved"
    assert any(("cut off" if cut else "no network device") in note for note in found.notes), found.notes


def stream(raw: bytes, size: int) -> Stream:
    return Stream("x", iter([raw[at : at + size] for at in range(0, len(raw), size)] or [b""]), raw[:100])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=3000), st.integers(1, 700))
def test_any_bytes(raw: bytes, size: int) -> None:
    assert of_streams([stream(raw, size)]).verdict.causes


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from([line for path in CASES for line in path.read_bytes().splitlines(True)]), max_size=30),
    st.randoms(use_true_random=False),
    st.integers(1, 4000),
)
def test_mutated_logs(lines: list[bytes], dice: random.Random, size: int) -> None:
    raw = bytearray(b"".join(lines))
    for _ in range(min(len(raw), 12)):
        raw[dice.randrange(len(raw))] = dice.randrange(256)
    verdict = of_streams([stream(bytes(raw), size)]).verdict
    assert verdict.causes and all(cause.confidence in ("sure", "likely", "possible") for cause in verdict.causes)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(CASES), st.integers(1, 997))
def test_pieces_do_not_matter(path: Path, size: int) -> None:
    raw = path.read_bytes()
    whole, pieces = (of_streams([stream(raw, n)]).verdict.causes for n in (1 << 20, size))
    assert [(cause.cause, cause.confidence, cause.evidence) for cause in whole] == [
        (cause.cause, cause.confidence, cause.evidence) for cause in pieces
    ]


def test_an_endless_line_is_cut() -> None:
    found = of_streams([Stream("x", (b"y" * (1 << 20) for _ in range(8)), b"y"), stream(SHM, 100)])
    assert found.verdict.causes[0].cause == "shm-too-small"


def packed(tmp_path: Path, name: str, mode: str) -> Path:
    (tmp_path / "n1").mkdir(exist_ok=True)
    (tmp_path / "n1" / "v.log").write_bytes(SHM)
    (tmp_path / "n1" / "old.log.gz").write_bytes(gzip.compress(b"quiet\n"))
    (tmp_path / "n1" / "core").write_bytes(b"\x7fELF" + b"\0" * 100)
    with tarfile.open(tmp_path / name, mode) as archive:  # type: ignore[call-overload]
        archive.add(tmp_path / "n1", "n1")
    return tmp_path / name


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_archives_are_read_member_by_member(tmp_path: Path, mode: str) -> None:
    found = diagnose([str(packed(tmp_path, "logs.any", mode))])
    assert found.verdict.causes[0].cause == "shm-too-small"
    assert [name.rpartition("logs.any/")[2] for name in found.sources] == ["n1/old.log.gz", "n1/v.log"] or len(
        found.sources
    ) == 2
    assert any("core: not text" in note for note in found.notes)


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_member_that_begins_with_zero_bytes(tmp_path: Path, mode: str) -> None:
    """As a log that was emptied while its writer went on: one such file takes nothing from the others."""
    (tmp_path / "a.log").write_bytes(bytes(5 << 20) + SHM)
    with tarfile.open(tmp_path / "logs.tar", mode) as archive:  # type: ignore[call-overload]
        archive.add(tmp_path / "a.log", "a.log")
    assert first(tmp_path / "logs.tar") == first(tmp_path / "a.log") != "unresolved"


def test_zip_and_cut_archives(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("v.log", SHM)
    assert first(tmp_path / "a.zip") == "shm-too-small"
    whole = packed(tmp_path, "b.tar", "w").read_bytes()
    for size in (len(whole) // 3, 700, 513, 600):
        (tmp_path / "cut.tar").write_bytes(whole[:size])
        found = diagnose([str(tmp_path / "cut.tar")])
        assert found.verdict.causes
    (tmp_path / "broken.zip").write_bytes((tmp_path / "a.zip").read_bytes()[:40])
    assert diagnose([str(tmp_path / "broken.zip")]).notes


def test_zero_bytes_pipes_devices_and_links_to_nothing(tmp_path: Path) -> None:
    for name, raw in (("holes", b"\0" * 3_000_000 + SHM), ("wide", SHM.decode().encode("utf-16"))):
        (tmp_path / name).write_bytes(raw)
        assert first(tmp_path / name) == "shm-too-small", name
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 36)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent")
    (tmp_path / "noise").write_bytes(random.Random(2).randbytes(100_000))
    found = diagnose([str(tmp_path / name) for name in ("sparse", "pipe", "nowhere", "noise")] + ["/dev/zero"])
    assert not found.sources and [note.partition(": ")[2] for note in found.notes] == [
        "a link to nothing",
        "nothing but zero bytes, not read",
        "a pipe that nobody writes to, not read",
        "not text, not read",
        "neither a file nor a folder, not read",
    ]


def test_a_pipe_with_a_writer_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys,time; f=open(sys.argv[1],'wb'); time.sleep(0.3); f.write(sys.argv[2].encode())",
            str(tmp_path / "pipe"),
            SHM.decode(),
        ]
    ):
        assert first(tmp_path / "pipe") == "shm-too-small"


def test_equal_names_in_two_folders_stay_apart(tmp_path: Path) -> None:
    for name in ("n1", "n2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "v.log").write_bytes(SHM)
    found = diagnose([str(tmp_path / "n1"), str(tmp_path / "n2")])
    assert len(found.sources) == 2 and len({item.source for item in found.verdict.causes[0].evidence}) == 2


TABLES = [
    "ib-link-or-hca-fault.ibstat",
    "roce-gid-wrong",
    "stale-process.smi",
    "rank-stopped.ps",
    "mtu-mismatch.two-nodes",
    "pcie-degraded.query",
    "gpu-ecc-row-remap",
]


@pytest.mark.parametrize("name", TABLES)
def test_tables_in_wrappers_of_collectors(tmp_path: Path, name: str) -> None:
    lines = (Path(__file__).parent / "cases" / f"{name}.log").read_text().splitlines()
    wrappers = {
        "docker": [
            json.dumps({"log": line + "\n", "stream": "stdout", "time": "2026-01-01T00:00:00.1Z"}) for line in lines
        ],
        "fluent-bit": [json.dumps({"date": 1.5, "kubernetes": {"pod_name": "a-0"}, "log": line}) for line in lines],
        "cloud": [json.dumps({"insertId": "x", "severity": "INFO", "textPayload": line}) for line in lines],
        "srun": ["0: " + line for line in lines],
        "srun-wide": [" 12: " + line for line in lines],
        "mpirun": ["[1,0]<stdout>: " + line for line in lines],
    }
    for wrapper, wrapped in wrappers.items():
        path = tmp_path / wrapper
        path.write_text("\n".join(wrapped) + "\n")
        causes = diagnose([str(path)]).verdict.causes
        assert causes[0].cause == name.split(".")[0], (wrapper, [(cause.cause, cause.summary) for cause in causes])


def test_states_of_a_progress_bar_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bar"
    path.write_text(
        "".join(
            f"Loading safetensors checkpoint shards: {n:3}% Completed | {n}/100 [00:{n}<05:00, 9.1s/it]\r"
            for n in range(1, 5)
        )
        + "\n"
    )
    assert first(path) == "slow-not-hung"


def test_a_result_of_ncdiag_is_no_log(tmp_path: Path) -> None:
    """Its words name what is in order, too: none of them is a sign."""
    saved, log = tmp_path / "findings.json", tmp_path / "a.log"
    saved.write_text(
        json.dumps(
            {"schema": 1, "command": "preflight", "findings": [{"summary": "ptrace is denied: SYS_PTRACE"}]}, indent=1
        )
    )
    log.write_text("hello\n")
    assert diagnose([str(saved)]).sources == []
    both = diagnose([str(saved), str(log)])
    assert both.sources == [str(log)] and both.verdict.causes[0].cause == "unresolved"
    assert f"ncdiag report {saved}" in both.notes[0]


@pytest.mark.parametrize("command", ["diagnose", "log"])
@pytest.mark.parametrize("content, says", [(b"", "is empty (0 bytes)"), (b"\n  \n\n", "holds nothing but blank lines")])
def test_an_empty_file_is_called_empty(tmp_path: Path, command: str, content: bytes, says: str) -> None:
    path = tmp_path / "rank0.log"
    path.write_bytes(content)
    run = subprocess.run(
        [sys.executable, "-m", "ncdiag", command, str(path), "--format", "json"], capture_output=True, check=False
    )
    data = json.loads(run.stdout)
    assert run.returncode == 3
    (note,) = [note for note in data["notes"] if "rank0.log" in note and "nobody wrote to it" in note]
    assert says in note and "NCCL_DEBUG=INFO" in note
    if command == "diagnose":
        assert [cause["cause"] for cause in data["causes"]] == ["unresolved"] and "empty" in data["causes"][0][
            "summary"
        ]


def test_an_empty_file_beside_others_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"")
    (tmp_path / "b.log").write_bytes(SHM)
    found = diagnose([str(tmp_path)])
    assert found.verdict.causes[0].cause == "shm-too-small" and "a.log is empty" in found.notes[0]


def test_zstd_by_its_program(tmp_path: Path) -> None:
    program = shutil.which("zstd")
    if program is None:
        pytest.skip("no program zstd")
    plain, packed = tmp_path / "x.log", tmp_path / "x.log.zst"
    chance = random.Random(1)
    plain.write_bytes(SHM + b"".join(b"%s\n" % chance.randbytes(50).hex().encode() for _ in range(6000)))
    subprocess.run([program, "-q", str(plain), "-o", str(packed)], check=True)
    plain.unlink()
    found = diagnose([str(packed)])
    assert found.verdict.causes[0].cause == "shm-too-small" and not found.notes
    packed.write_bytes(packed.read_bytes()[:-1000])
    found = diagnose([str(packed)])
    assert found.verdict.causes[0].cause == "shm-too-small" and "unfinished" in found.notes[0]


@pytest.mark.parametrize("command", ["diagnose", "log"])
def test_zstd_without_module_and_program_is_one_line(tmp_path: Path, command: str) -> None:
    if importlib.util.find_spec("zstandard") is not None:
        pytest.skip("the module is here")
    path = tmp_path / "x.log.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + b"\0" * 20)
    run = subprocess.run(
        [sys.executable, "-m", "ncdiag", command, str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": str(tmp_path)},
    )
    assert run.returncode == 2 and run.stdout == ""
    (line,) = [line for line in run.stderr.splitlines() if line.startswith("Error: ")]
    assert "x.log.zst: zstd-compressed, not read: install zstd" in line
