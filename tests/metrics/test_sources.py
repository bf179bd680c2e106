"""What each source writes, over captured machines and small stand-ins for hardware that is not here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from ncdiag.host import Host, Recorded
from ncdiag.metrics import engine, findings, nic, rdma
from ncdiag.metrics.exporter import Exporter, Source
from ncdiag.metrics.gpu import Gpus
from ncdiag.metrics.ranks import count
from ncdiag.metrics.sheet import NotRead, Sheet
from ncdiag.model import Finding, fail, ok, warn
from ncdiag.processes.machine import Machine
from ncdiag.tree import open_tree
from tests.processes.programs import CHILDREN, running

TREES = Path(__file__).parents[1] / "trees"


def lines(sheet: Sheet) -> dict[str, float]:
    """`name{labels}` -> value, as it would be scraped."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Sheet(sheet))
    text = generate_latest(registry).decode()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if not line.startswith("#")
    }


class _Sheet(Collector):
    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet

    def collect(self) -> Iterator[Metric]:
        return self._sheet.families()


def recorded(name: str) -> Recorded:
    return Recorded(open_tree(str(TREES / f"{name}.tar.gz")), name)


def test_lost_packets_of_a_captured_machine_are_counted() -> None:
    sheet = Sheet()
    rdma.read(recorded("counters-after-10pct-loss"), rdma.Running(), sheet)
    found = lines(sheet)
    assert sum(value for name, value in found.items() if 'kind="loss"' in name) > 0
    assert all(value == 1 for name, value in found.items() if name.startswith("ncdiag_rdma_port_active"))


def test_a_port_that_is_down_is_0_and_a_machine_without_is_not_read() -> None:
    sheet = Sheet()
    rdma.read(recorded("port-down-admin"), rdma.Running(), sheet)
    assert 0.0 in [value for name, value in lines(sheet).items() if name.startswith("ncdiag_rdma_port_active")]
    for name in ("no-rdma-device", "no-rdma-modules"):
        sheet = Sheet()
        with pytest.raises(NotRead, match="no RDMA device"):
            rdma.read(recorded(name), rdma.Running(), sheet)
        assert lines(sheet) == {}


def port(root: Path, layer: str = "InfiniBand", **values: object) -> Host:
    """A machine with one port of one device, as sysfs shows it."""
    base = root / "sys/class/infiniband/mlx5_0/ports/1"
    (base / "counters").mkdir(parents=True, exist_ok=True)
    (base / "hw_counters").mkdir(exist_ok=True)
    (base / "state").write_text("4: ACTIVE\n")
    (base / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (base / "link_layer").write_text(layer + "\n")
    for name, value in values.items():
        (base / "counters" / name).write_text(f"{value}\n")
    return Recorded(open_tree(str(root)), "here")


def test_units_maxima_and_what_cannot_be_read(tmp_path: Path) -> None:
    host = port(
        tmp_path,
        port_xmit_data=1000,
        symbol_error=0xFFFF,
        link_downed=2,
        out_of_sequence=7,
        port_rcv_errors="N/A (no PMA)",
    )
    sheet = Sheet()
    rdma.read(host, rdma.Running(), sheet)
    found = lines(sheet)
    where = 'device="mlx5_0"'
    assert found[f'ncdiag_rdma_sent_bytes_total{{{where},port="1"}}'] == 4000
    assert found[f'ncdiag_rdma_port_rate_bits_per_second{{{where},port="1"}}'] == 4e11
    assert found[f'ncdiag_rdma_counter_stuck{{counter="symbol_error",{where},port="1"}}'] == 1
    assert found[f'ncdiag_rdma_counter_stuck{{counter="link_downed",{where},port="1"}}'] == 0
    assert found[f'ncdiag_rdma_counter_unread{{{where},port="1"}}'] == 1
    assert (
        found[f'ncdiag_rdma_errors_total{{counter="out_of_sequence",{where},kind="order",layer="InfiniBand",port="1"}}']
        == 7
    )
    assert not any("port_rcv_errors" in name or "received_bytes" in name for name in found), (
        "unread is missing, not zero"
    )


def test_out_of_sequence_is_loss_on_ethernet(tmp_path: Path) -> None:
    sheet = Sheet()
    rdma.read(port(tmp_path, "Ethernet", out_of_sequence=7), rdma.Running(), sheet)
    assert any('counter="out_of_sequence"' in name and 'kind="loss"' in name for name in lines(sheet))


def test_a_counter_that_wraps_or_is_reset_never_goes_back() -> None:
    running = rdma.Running()
    key = ("mlx5_0", "1", "packet_seq_err")
    assert [running.total(key, value) for value in ((1 << 32) - 5, 7, 9, 0, 3)] == [
        (1 << 32) - 5,
        (1 << 32) + 7,
        (1 << 32) + 9,
        (1 << 32) + 9,
        (1 << 32) + 12,
    ]


def interface(
    root: Path, name: str, index: int, link: int, flags: str = "0x1003", hardware: bool = True, **files: object
) -> None:
    base = root / "sys/class/net" / name
    (base / "statistics").mkdir(parents=True)
    for file, value in {"ifindex": index, "iflink": link, "flags": flags, "operstate": "up", **files}.items():
        (base / file).write_text(f"{value}\n")
    (base / "statistics/tx_bytes").write_text("12\n")
    if hardware:
        (base / "device").mkdir()
        (base / "device/vendor").write_text("0x15b3\n")


def test_interfaces_with_hardware_and_what_lies_over_them(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", 2, 2, speed=100000)
    interface(tmp_path, "eth1", 3, 3, speed=-1, operstate="down")
    interface(tmp_path, "eth0.5", 4, 2, hardware=False)
    interface(tmp_path, "veth1a", 9, 8, hardware=False)
    interface(tmp_path, "lo", 1, 1, "0x9", hardware=False)
    sheet = Sheet()
    nic.read(Recorded(open_tree(str(tmp_path)), "here"), sheet)
    found = lines(sheet)
    assert {name for name in found if name.startswith("ncdiag_nic_sent")} == {
        f'ncdiag_nic_sent_bytes_total{{device="{name}"}}' for name in ("eth0", "eth1", "eth0.5")
    }
    assert found['ncdiag_nic_speed_bits_per_second{device="eth0"}'] == 1e11
    assert 'ncdiag_nic_speed_bits_per_second{device="eth1"}' not in found
    assert found['ncdiag_nic_up{device="eth1"}'] == 0


def test_the_interface_of_a_container_is_watched(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", 5, 6, hardware=False)
    interface(tmp_path, "lo", 1, 1, "0x9", hardware=False)
    host = Recorded(open_tree(str(tmp_path)), "here")
    assert nic.interfaces(host, ["eth0", "lo"]) == ["eth0"]


class NvmlError(Exception):
    def __init__(self, text: str, value: int = 3) -> None:
        super().__init__(text)
        self.value = value


class Nvml:
    """Two GPUs as NVML tells them; the second does not tell its power, and may be gone."""

    NVMLError = NvmlError

    def __init__(self, gone: bool = False, loads: bool = True) -> None:
        self.gone, self.loads = gone, loads
        self.events: list[tuple[int, int]] = []

    def nvmlInit(self) -> None:
        if not self.loads:
            raise NvmlError("NVML Shared Library Not Found")

    def nvmlShutdown(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == 1 and self.gone:
            raise NvmlError("GPU is lost", 15)
        return index

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(busId=f"00000000:{handle + 1:02X}:00.0".encode())

    def nvmlDeviceGetClockInfo(self, handle: int, clock: int) -> int:
        return 1200

    def nvmlDeviceGetMaxClockInfo(self, handle: int, clock: int) -> int:
        return 1980

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        if handle:
            raise NvmlError("Not Supported")
        return 350500

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
        return 700000

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 61

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=97)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(used=5, total=9)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 0x44 if handle == 0 else 0

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlDeviceRegisterEvents(self, handle: int, kinds: int, events: object) -> None:
        pass

    def nvmlEventSetWait(self, events: object, limit_ms: int) -> Any:
        if not self.events:
            time.sleep(0.01)
            raise NvmlError("Timeout", 10)
        device, code = self.events.pop()
        return SimpleNamespace(device=device, eventType=0x8, eventData=code)


def test_gpus_are_told_and_what_one_does_not_tell_is_missing() -> None:
    sheet = Sheet()
    Gpus(Nvml()).read(sheet)
    found = lines(sheet)
    first, second = 'busid="0000:01:00.0"', 'busid="0000:02:00.0"'
    assert found[f'ncdiag_gpu_clock_hertz{{{first},clock="sm",gpu="0"}}'] == 1.2e9
    assert found[f'ncdiag_gpu_power_watts{{{first},gpu="0"}}'] == 350.5
    assert f'ncdiag_gpu_power_watts{{{second},gpu="1"}}' not in found
    assert found[f'ncdiag_gpu_throttle{{{first},gpu="0",reason="hw_thermal_slowdown"}}'] == 1
    assert found[f'ncdiag_gpu_throttle{{{first},gpu="0",reason="hw_power_brake_slowdown"}}'] == 0
    assert not any("xid" in name for name in found), "nobody watched"


def test_a_gpu_that_is_lost_is_said_and_the_other_is_told() -> None:
    sheet = Sheet()
    with pytest.raises(NotRead, match="GPU 1 of 2 does not answer"):
        Gpus(Nvml(gone=True)).read(sheet)
    assert {name for name in lines(sheet) if "temperature" in name} == {
        'ncdiag_gpu_temperature_celsius{busid="0000:01:00.0",gpu="0"}'
    }


def test_without_a_driver_there_is_no_series() -> None:
    sheet = Sheet()
    with pytest.raises(NotRead, match="Shared Library Not Found"):
        Gpus(Nvml(loads=False)).read(sheet)
    assert lines(sheet) == {}


def test_xids_are_counted_by_kind_from_0() -> None:
    nvml = Nvml()
    gpus = Gpus(nvml)
    gpus.watch()
    before, after = Sheet(), Sheet()
    gpus.read(before)
    series = 'ncdiag_gpu_xid_total{busid="0000:02:00.0",gpu="1",kind="hardware"}'
    assert lines(before)[series] == 0
    nvml.events += [(1, 79), (1, 31)]
    end = time.monotonic() + 5
    while nvml.events and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.1)
    gpus.read(after)
    found = lines(after)
    assert found[series] == 1
    assert found[series.replace("hardware", "software")] == 1
    assert found['ncdiag_gpu_last_xid{busid="0000:02:00.0",gpu="1"}'] == 79


@pytest.fixture
def endpoint() -> Iterator[Any]:
    """`endpoint(text)` serves the text on loopback and gives its URL."""
    running: list[HTTPServer] = []

    def serve(text: str, status: int = 200) -> str:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Answer)
        running.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        return f"http://127.0.0.1:{server.server_port}/metrics"

    yield serve
    for server in running:
        server.shutdown()
        server.server_close()


def exposition(prefix: str, usage: str, between: str, labels: str) -> str:
    """What vLLM writes, of the metrics that are watched."""
    return "".join(
        f"# TYPE {prefix}{name} {kind}\n{text}"
        for name, kind, text in [
            ("num_requests_waiting", "gauge", f"{prefix}num_requests_waiting{{{labels}}} 12.0\n"),
            ("num_requests_running", "gauge", f"{prefix}num_requests_running{{{labels}}} 3.0\n"),
            (usage, "gauge", f"{prefix}{usage}{{{labels}}} 0.97\n"),
            ("num_preemptions", "counter", f"{prefix}num_preemptions_total{{{labels}}} 4.0\n"),
            ("request_success", "counter", f'{prefix}request_success_total{{finished_reason="stop",{labels}}} 8.0\n'),
            *(
                (name, "histogram", f'{prefix}{name}_bucket{{le="0.1",{labels}}} 1.0\n{prefix}{name}_bucket{{le="+Inf",{labels}}} 2.0\n'
                 f"{prefix}{name}_count{{{labels}}} 2.0\n{prefix}{name}_sum{{{labels}}} 1.5\n")
                for name in ("time_to_first_token_seconds", between)
            ),
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("prefix", "usage", "between", "labels"),
    [
        ("vllm:", "gpu_cache_usage_perc", "time_per_output_token_seconds", 'model_name="m"'),
        ("vllm:", "gpu_cache_usage_perc", "time_per_output_token_seconds", 'engine="0",model_name="m"'),
        ("vllm:", "kv_cache_usage_perc", "inter_token_latency_seconds", 'engine="0",model_name="m"'),
        ("ray_vllm:", "kv_cache_usage_perc", "inter_token_latency_seconds", 'ReplicaId="r",engine="0",model_name="m"'),
        ("ray_vllm_", "kv_cache_usage_perc", "inter_token_latency_seconds", 'ReplicaId="r",engine="0",model_name="m"'),
    ],
    ids=["v0", "0.8", "0.32", "ray", "ray-otel"],
)
def test_an_engine_of_any_version_gets_the_same_names(
    endpoint: Any, prefix: str, usage: str, between: str, labels: str
) -> None:
    url = endpoint(exposition(prefix, usage, between, labels))
    sheet = Sheet()
    engine.read(url, sheet)
    found = lines(sheet)
    where = f'engine="{"0" if "engine" in labels else ""}",model="m",'
    assert found[f'ncdiag_engine_requests_waiting{{{where}target="{url}"}}'] == 12
    assert found[f'ncdiag_engine_kv_cache_usage_ratio{{{where}target="{url}"}}'] == 0.97
    assert found[f'ncdiag_engine_preemptions_total{{{where}target="{url}"}}'] == 4
    assert found[f'ncdiag_engine_requests_finished_total{{{where}reason="stop",target="{url}"}}'] == 8
    for name in ("time_to_first_token", "inter_token_latency"):
        bucket = where.replace("model", 'le="0.1",model')
        assert found[f'ncdiag_engine_{name}_seconds_bucket{{{bucket}target="{url}"}}'] == 1
        assert found[f'ncdiag_engine_{name}_seconds_sum{{{where}target="{url}"}}'] == 1.5


def test_a_version_that_writes_both_names_is_counted_once(endpoint: Any) -> None:
    text = 'vllm:num_requests_waiting{engine="0"} 1\nvllm:kv_cache_usage_perc{engine="0"} 0.5\nvllm:gpu_cache_usage_perc{engine="0"} 0.5\n'
    sheet = Sheet()
    engine.read(endpoint(text), sheet)
    assert sum("kv_cache" in name for name in lines(sheet)) == 1


@pytest.mark.parametrize(
    ("text", "status", "why"),
    [
        ("<html>", 200, "text form|no metric"),
        ("up 1\n", 200, "no metric of vLLM"),
        ("x", 404, "Not Found"),
        ("a" * (9 << 20), 200, "more than"),
    ],
)
def test_another_answer_is_no_engine(endpoint: Any, text: str, status: int, why: str) -> None:
    sheet = Sheet()
    with pytest.raises(NotRead, match=why):
        engine.read(endpoint(text, status), sheet)
    assert lines(sheet) == {}


FOUND: list[Finding] = [
    fail("x", "gpu01", cause="shm-too-small", remedy="r", source="s"),
    warn("y", "gpu01", device="mlx5_0", source="s"),
    ok("z", "gpu02"),
]


def test_findings_are_gauges_and_health_is_only_counted() -> None:
    sheet = Sheet()
    findings.add(FOUND, 1000.0, sheet)
    found = lines(sheet)
    assert found['ncdiag_findings{status="ok"}'] == 1
    assert found['ncdiag_finding{cause="shm-too-small",device="",node="gpu01",probe="",status="fail"}'] == 1
    assert not any("gpu02" in name for name in found)
    assert found["ncdiag_findings_time_seconds"] == 1000


def test_a_saved_result_is_read_and_another_file_refused(tmp_path: Path) -> None:
    saved = tmp_path / "f.json"
    saved.write_text(
        '{"schema": 1, "command": "preflight", "nodes": ["n"], "findings": [{"probe": "shm", "status": "fail", "where": {"node": "n"}, "summary": "s"}]}'
    )
    sheet = Sheet()
    findings.read_file(str(saved), sheet)
    assert lines(sheet)['ncdiag_finding{cause="",device="",node="n",probe="shm",status="fail"}'] == 1
    for text in ("{}", "[" * 100000, "no"):
        saved.write_text(text)
        with pytest.raises(NotRead):
            findings.read_file(str(saved), Sheet())


def test_judging_again_says_why_until_there_is_an_answer() -> None:
    go = threading.Event()

    def judge() -> list[Finding]:
        go.wait(5)
        return FOUND

    again = findings.Again(3600, judge)
    with pytest.raises(NotRead, match="not ended"):
        again.read(Sheet())
    go.set()
    end = time.monotonic() + 5
    while again._why and time.monotonic() < end:
        time.sleep(0.01)
    sheet = Sheet()
    again.read(sheet)
    assert lines(sheet)['ncdiag_findings{status="fail"}'] == 1


def test_ranks_are_counted_by_the_environment_of_their_launcher() -> None:
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    before = count(Host(), Machine(Host()))
    started = [
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env={**environment, "RANK": str(rank)})
        for rank in range(2)
    ]
    try:
        time.sleep(0.3)
        assert count(Host(), Machine(Host())) == before + 2
        started[1].send_signal(signal.SIGKILL)
        started[1].wait()
        assert count(Host(), Machine(Host())) == before + 1
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_data_loaders_that_outlive_their_rank_are_not_counted(tmp_path: Path) -> None:
    before = count(Host(), Machine(Host()))
    with running(CHILDREN, "fork", folder=tmp_path, environment={"RANK": "0", "WORLD_SIZE": "1"}) as (rank, loaders):
        assert count(Host(), Machine(Host())) == before + 1
        rank.kill()
        rank.wait()
        assert all(Path(f"/proc/{pid}").exists() for pid in loaders)
        assert count(Host(), Machine(Host())) == before


def test_one_source_that_hangs_or_breaks_does_not_stop_the_others() -> None:
    go = threading.Event()

    def hangs(sheet: Sheet) -> None:
        go.wait(30)

    def breaks(sheet: Sheet) -> None:
        sheet.add("ncdiag_node_ranks", 3)
        raise ZeroDivisionError("x")

    def works(sheet: Sheet) -> None:
        sheet.add("ncdiag_nic_up", 1, device="eth0")

    exporter = Exporter([Source("gpu", hangs), Source("ranks", breaks), Source("nic", works)], limit_s=0.3)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(exporter)
    text = generate_latest(registry).decode()
    assert 'ncdiag_up{source="gpu",target=""} 0.0' in text
    assert "no answer within 0.3 s" in text
    assert 'ncdiag_up{source="ranks",target=""} 0.0' in text
    assert "ncdiag_node_ranks " not in text
    assert 'ncdiag_up{source="nic",target=""} 1.0' in text
    before = threading.active_count()
    generate_latest(registry)
    assert threading.active_count() <= before, "the one that hangs is not started again"
    go.set()


def test_a_label_that_the_table_does_not_have_is_an_error() -> None:
    with pytest.raises(KeyError):
        Sheet().add("ncdiag_nic_up", 1, nic="eth0")


def test_what_vllm_0_32_itself_wrote(endpoint: Any) -> None:
    """data/vllm-0.32.txt is what its own logger wrote for 12 waiting requests, 97 % of the KV cache and first tokens after 0.05 s and 6 s."""
    url = endpoint((Path(__file__).parent / "data" / "vllm-0.32.txt").read_text())
    sheet = Sheet()
    engine.read(url, sheet)
    found = lines(sheet)
    written = {name.partition("{")[0] for name in found}
    histograms = {f"{name}_{part}" for name in engine.HISTOGRAMS for part in ("bucket", "count", "sum")}
    assert written == {*engine.NAMES, *histograms}
    where = f'engine="0",model="tiny",target="{url}"'
    assert found[f"ncdiag_engine_requests_waiting{{{where}}}"] == 12
    assert found[f"ncdiag_engine_kv_cache_usage_ratio{{{where}}}"] == 0.97
    assert found[f"ncdiag_engine_time_to_first_token_seconds_sum{{{where}}}"] == 6.05
    assert (
        found[f'ncdiag_engine_time_to_first_token_seconds_bucket{{engine="0",le="5.0",model="tiny",target="{url}"}}']
        == 1
    )
