"""``autospec bench`` through the front door, on servers that speak SGLang's HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from autospec import demo, schema
from autospec.bench.result import BenchResult
from autospec.config import PLAIN, SpecConfig
from autospec.metrics import Slo
from autospec.profile import Profile
from tests.cli import fake_autospec
from tests.cli.conftest import Run
from tests.fake_sglang import FakeSGLang

NGRAM = "NGRAM tokens=4 breadth=2"
SHORT = ("--concurrency", "1,4", "--requests-per-pass", 4, "--max-new-tokens", 12)


@pytest.fixture(autouse=True)
def no_server_left() -> object:
    """Whatever a test does, it leaves no process behind."""
    yield
    assert psutil.Process().children(recursive=True) == []


@pytest.fixture
def on_cpu(model: Path, prompts: Path) -> list[object]:
    """Options to launch the fake engine with a model."""
    return ["--prompts", prompts, *SHORT, "--model", model, "--device", "cpu"]


@contextmanager
def web_page(status: int, body: bytes) -> Iterator[str]:
    """Something on HTTP that is not SGLang; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(10)


def read(text: str) -> BenchResult:
    """A result from its JSON."""
    return schema.load(BenchResult, json.loads(text), "result")


def last_line(text: str) -> str:
    """The one line that says what went wrong."""
    assert "Traceback" not in text
    return text.strip().splitlines()[-1]


def test_configuration_is_launched_and_measured_at_each_load(
    run: Run, on_cpu: list[object], model: Path, prompts: Path
) -> None:
    """JSON alone on standard output, and the same in the file; it holds every figure."""
    result = run("bench", NGRAM, *on_cpu, "--slo", "ttft_ms=1e6", "--json", "-o", "out/r.json")
    assert result.exit_code == 0, result.output
    assert Path("out/r.json").read_text() == result.stdout
    found = read(result.stdout)
    subject = found.arm.subject
    assert subject.config == SpecConfig.parse(NGRAM)
    assert subject.model == str(model.resolve())
    assert subject.digest
    assert subject.environment is not None
    assert subject.environment.cpu_threads
    assert subject.resolved["speculative_algorithm"] == "NGRAM"
    assert subject.resolved["max_running_requests"] == 48
    assert len(found.arm.launch_s) == 1
    assert found.workload.name == str(prompts)
    assert found.slo == Slo(ttft_ms=1e6)
    assert [load.load for load in found.arm.loads] == ["1", "4"]
    for load in found.arm.loads:
        assert len(load.throughputs) == 3
        assert load.output_throughput.low == min(load.throughputs)
        assert load.accept_length is not None
        assert load.accept_length > 1
        assert load.accept_rate_per_pos[0] > 0
        assert load.ttft_ms is not None
        assert load.tpot_ms is not None
        assert load.e2e_latency_ms is not None
        assert load.chunk_gap_ms is not None
        assert load.step_time_ms is not None
        assert load.slo_attainment == 1
        assert load.request_goodput is not None
        assert load.request_goodput > 0
        assert load.client_busy_share > 0


def test_tables_fit_80_columns(
    run: Run, on_cpu: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person finds throughput, latencies, acceptance and what the SLO says."""
    monkeypatch.setenv("COLUMNS", "80")
    result = run("bench", NGRAM, *on_cpu, "--slo", "ttft_ms=200 tpot_ms=20")
    assert result.exit_code == 0, result.output
    tables = [line for line in result.stdout.splitlines() if not line.startswith("warning")]
    assert max(map(len, tables)) <= 80
    for shown in ("tok/s", "step ms", "ttft_ms", "p99", "chunk_gap_ms", "share within SLO"):
        assert shown in result.stdout
    assert "pass 6/6" in result.stderr


@pytest.mark.usefixtures("profile")
def test_profile_is_launched_as_serve_would(run: Run, prompts: Path) -> None:
    """Its choice, its settings and the pass-through flags reach the server."""
    flags = ("--", "--chunked-prefill-size", "512")
    result = run("bench", "p.yaml", "--prompts", prompts, *SHORT, "--json", *flags)
    assert result.exit_code == 0, result.output
    subject = read(result.stdout).arm.subject
    assert subject.name == "p.yaml"
    assert subject.config.algorithm == "NGRAM"
    assert subject.resolved["speculative_num_draft_tokens"] == 8
    assert subject.resolved["chunked_prefill_size"] == 512


def test_profile_of_another_model_is_refused(
    run: Run, profile: Profile, prompts: Path, model: Path
) -> None:
    """As serve does, by the first field that differs."""
    (model / "model.safetensors").write_bytes(b"other weights of the same name")
    result = run("bench", "p.yaml", "--prompts", prompts, *SHORT)
    assert result.exit_code == 1
    assert f"model digest {profile.target.digest!r}" in last_line(result.stderr)


def test_running_server_is_measured_by_its_address(run: Run, prompts: Path) -> None:
    """What it is comes from what it says; nothing is claimed about its machine."""
    with FakeSGLang(speculative_algorithm="NGRAM", max_running_requests=8) as fake:
        result = run("bench", "--url", fake.url, "--prompts", prompts, *SHORT, "--json")
        assert fake.server.flushes >= 2 * 6
    assert result.exit_code == 0, result.output
    subject = read(result.stdout).arm.subject
    assert (subject.name, subject.model) == (fake.url, "fake/model")
    assert subject.config.algorithm == "NGRAM"
    assert subject.environment is None
    assert read(result.stdout).arm.launch_s == ()


def test_rates_of_arrival_are_loads_too(run: Run, prompts: Path) -> None:
    """Without --concurrency they are the only ones."""
    with FakeSGLang() as fake:
        result = run(
            *("bench", fake.url, "--prompts", prompts, "--request-rate", "40,80"),
            *("--requests-per-pass", 6, "--max-new-tokens", 8, "--json"),
        )
    assert result.exit_code == 0, result.output
    assert [load.load for load in read(result.stdout).arm.loads] == ["40/s", "80/s"]


def test_key_goes_to_the_server_and_nowhere_else(
    run: Run, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the variable named; without it the refusal says how to give one."""
    with FakeSGLang(api_key="the-secret-key") as fake:
        arguments = ("bench", "--url", fake.url, "--prompts", prompts, *SHORT)
        refused = run(*arguments)
        monkeypatch.setenv("MY_KEY", "the-secret-key")
        passed = run(*arguments, "--api-key-env", "MY_KEY", "--json")
    assert refused.exit_code == 1
    assert "--api-key-env" in last_line(refused.stderr)
    assert passed.exit_code == 0, passed.output
    assert "the-secret-key" not in passed.output


def test_other_version_is_a_warning(run: Run, prompts: Path) -> None:
    """As long as it answers in the same form; the result keeps the warning."""
    with FakeSGLang(version="0.5.24") as fake:
        result = run("bench", "--url", fake.url, "--prompts", prompts, *SHORT, "--json")
    assert result.exit_code == 0, result.output
    assert "SGLang 0.5.24" in result.stderr
    found = read(result.stdout).arm
    assert any("0.5.24" in line for line in found.warnings)
    assert found.subject.resolved["version"] == "0.5.24"


@pytest.mark.parametrize(
    ("status", "body", "named"),
    [
        (404, b"Not Found", "is no SGLang server"),
        (200, b"<html>hello</html>", "not JSON"),
        (200, b"{}", "internal_states"),
    ],
)
def test_what_is_no_sglang_server_is_refused_in_one_line(
    run: Run, prompts: Path, status: int, body: bytes, named: str
) -> None:
    """With its address and what was wrong with its answer."""
    with web_page(status, body) as url:
        result = run("bench", "--url", url, "--prompts", prompts, *SHORT)
    assert result.exit_code == 1
    assert url in last_line(result.stderr)
    assert named in last_line(result.stderr)
    assert result.stdout == ""


def test_nobody_at_the_address(run: Run, prompts: Path) -> None:
    """The address is named."""
    result = run("bench", "--url", "http://127.0.0.1:1", "--prompts", prompts, *SHORT)
    assert result.exit_code == 1
    assert "http://127.0.0.1:1: cannot be measured" in last_line(result.stderr)


def test_busy_server_is_not_measured(
    run: Run, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush that others' requests prevent is said to be that."""
    from autospec.bench import session

    monkeypatch.setattr(session._Client.flush, "__defaults__", (0.1,))
    with FakeSGLang(step_s=0.2) as fake:
        scheduler = fake.server.scheduler
        fake._loop.call_soon_threadsafe(scheduler.submit, [1, 2, 3], 100)
        while not scheduler.running:
            time.sleep(0.01)
        result = run("bench", "--url", fake.url, "--prompts", prompts, *SHORT)
    assert result.exit_code == 1
    assert "still busy" in last_line(result.stderr)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("bench",), "TARGET"),
        (("bench", "PLAIN", "--url", "http://h:1"), "TARGET"),
        (("bench", "plain"), "'plain'"),
        (("bench", "PLAIN"), "--model"),
        (("bench", "NGRAM wonder=1", "--model", "model"), "wonder=1"),
        (("bench", "NGRAM tokens=1 breadth=9", "--model", "model", "--device", "cpu"), "rule"),
        (("bench", "none.yaml"), "none.yaml"),
        (("bench", "--url", "ftp://h:1"), "http://host:port"),
        (("bench", "--url", "http://h:1", "--dtype", "float32"), "--dtype float32"),
        (("bench", "--url", "http://h:1", "--slo", "speed=1"), "speed=1"),
        (("bench", "--url", "http://h:1", "--request-rate", "0"), "'0'"),
        (("bench", "--url", "http://h:1", "--api-key-env", "NOT_SET"), "NOT_SET"),
        (("bench", "--url", "http://h:1", "--concurrency", "64"), "prompts"),
        (("bench", "--url", "http://h:1", "-o", "model"), "model"),
        (("bench", "--demo", "PLAIN", "--model", "m"), "--demo"),
    ],
)
@pytest.mark.usefixtures("model")
def test_what_cannot_be_is_refused_before_anything_starts(
    run: Run, prompts: Path, arguments: tuple[str, ...], named: str
) -> None:
    """One line that names it, exit code 2."""
    command, *rest = arguments
    given = () if "--demo" in arguments else ("--prompts", prompts, "--concurrency", 2)
    result = run(command, *given, *rest)
    assert result.exit_code == 2, result.output
    assert named in last_line(result.stderr)


def test_secrets_in_an_address_are_refused_and_not_repeated(run: Run, prompts: Path) -> None:
    """A password would end up in results."""
    result = run("bench", "--url", "http://me:hidden@h:1", "--prompts", prompts)
    assert result.exit_code == 2
    assert "hidden" not in result.output


@pytest.mark.parametrize("target", ["PLAIN", "p.yaml"])
@pytest.mark.usefixtures("profile")
def test_secret_flags_are_refused(run: Run, model: Path, prompts: Path, target: str) -> None:
    """The command line of a server shows them to everybody on the machine."""
    arguments = ("bench", target, "--model", model, "--prompts", prompts, *SHORT)
    result = run(*arguments, "--", "--api-key", "hidden")
    assert result.exit_code == 2
    assert "--api-key" in last_line(result.stderr)
    assert "hidden" not in result.output


def test_demo_needs_nothing_but_what_to_measure(
    run: Run, model: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Model, prompts, device and short loads come with it; pass-through flags still do."""
    monkeypatch.setattr(demo, "model_path", lambda _notify: model)
    monkeypatch.setattr(demo, "prompts_path", lambda: prompts)
    result = run("bench", "PLAIN", "--demo", "--max-new-tokens", 8, "--json")
    assert result.exit_code == 0, result.output
    found = read(result.stdout)
    assert found.arm.subject.config == PLAIN
    assert [load.load for load in found.arm.loads] == ["1", "4"]
    assert found.arm.loads[0].requests == 6


@pytest.mark.usefixtures("profile")
def test_demo_prompts_for_a_profile_and_for_a_running_server(
    run: Run, model: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These have device and memory already."""
    monkeypatch.setattr(demo, "model_path", lambda _notify: model)
    monkeypatch.setattr(demo, "prompts_path", lambda: prompts)
    short = ("--demo", "--max-new-tokens", 8, "--concurrency", 1, "--json")
    result = run("bench", "p.yaml", *short)
    assert result.exit_code == 0, result.output
    with FakeSGLang() as fake:
        result = run("bench", "--url", fake.url, *short)
    assert result.exit_code == 0, result.output


def test_server_that_dies_gives_one_line_and_no_figure(
    run: Run, on_cpu: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it died of, not that requests failed."""
    monkeypatch.setenv("FAKE_SGLANG_FAULT", "die_after:9")
    result = run("bench", "PLAIN", *on_cpu, "--json", "-o", "r.json")
    assert result.exit_code == 1
    assert "the server died" in last_line(result.stderr)
    assert result.stdout == ""
    assert not Path("r.json").exists()


def test_server_that_cannot_start_says_why(
    run: Run, on_cpu: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cause is in the line, and the log stays where it is asked for."""
    monkeypatch.setenv("FAKE_SGLANG_FAULT", "oom_on:PLAIN")
    result = run("bench", "PLAIN", *on_cpu, "--logs", "logs")
    assert result.exit_code == 1
    assert "memory" in last_line(result.stderr)
    assert "Not enough memory" in Path("logs/001-PLAIN.log").read_text()


def test_server_that_stalls_is_given_up(run: Run, prompts: Path) -> None:
    """After the time allowed; the line says so."""
    with FakeSGLang(step_s=30.0) as fake:
        arguments = ("bench", fake.url, "--prompts", prompts, *SHORT, "--stall-timeout", "1s")
        began_s = time.monotonic()
        result = run(*arguments)
    assert time.monotonic() - began_s < 11
    assert result.exit_code == 1
    assert "lost" in last_line(result.stderr)


@pytest.mark.parametrize("command", [("bench", "PLAIN"), ("compare", "PLAIN", NGRAM)])
def test_interrupted_measuring_leaves_no_server(
    tmp_path: Path, on_cpu: list[object], command: tuple[str, ...]
) -> None:
    """Ctrl-C in mid-pass: one line, exit code 130, and the server is gone."""
    with subprocess.Popen(
        [sys.executable, fake_autospec.__file__, *command, *map(str, on_cpu)],
        cwd=tmp_path,
        env={**os.environ, "FAKE_SGLANG_STEP_S": "0.02"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        while not (line := process.stderr.readline()).startswith("pass 1/"):
            assert line, "autospec ended before its first pass"
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stdout == ""
    assert last_line(stderr) == "interrupted"
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []
