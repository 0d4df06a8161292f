"""The whole job on the real engine: a study killed in mid-trial, resumed, its profile served."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from autospec import demo
from autospec.profile import load_profile
from autospec.tune.study import Study, Trial

pytestmark = pytest.mark.engine

AUTOSPEC = (sys.executable, "-c", "from autospec.cli import main; main()")
SMALL_STUDY = (
    *("--device", "cpu", "--dtype", "bfloat16", "--mem-fraction-static", "0.2"),
    *("--concurrency", "1", "--requests-per-pass", "3", "--max-trials", "1"),
    *("--algorithm", "NGRAM", "--space", "tokens=4 breadth=1 match=BFS"),
    *(
        "--confirm-rounds",
        "1",
        "--lossless-prompts",
        "4",
        "--max-total-tokens",
        "16384",
        "--study",
        "study",
        "-o",
        "out.yaml",
    ),
)
#: Of the prompts, and tokens of an answer at most: what is tried is the whole job, not its figures.
NUM_PROMPTS, MAX_NEW_TOKENS = 30, 16
LIMIT_S = 2400


def prompts(folder: Path) -> Path:
    """Prompts of the demo with short answers."""
    lines = demo.prompts_path().read_text(encoding="utf-8").splitlines()[:NUM_PROMPTS]
    short = [{**json.loads(line), "max_new_tokens": MAX_NEW_TOKENS} for line in lines]
    path = folder / "prompts.jsonl"
    path.write_text("".join(f"{json.dumps(prompt)}\n" for prompt in short), encoding="utf-8")
    return path


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """``autospec`` as a user starts it, its output in a file."""
    with (folder / "output.txt").open("a") as output:
        return subprocess.Popen(
            [*AUTOSPEC, *arguments], cwd=folder, stdout=output, stderr=output, text=True
        )


def trials(folder: Path) -> tuple[Trial, ...]:
    """The study's trials so far."""
    if not (folder / "study" / "study.sqlite").exists():
        return ()
    with Study.open(folder / "study") as study:
        return study.trials()


def wait_for_second_server(process: subprocess.Popen[str], folder: Path) -> list[psutil.Process]:
    """Wait until plain decoding is measured and the next server loads; gives its processes."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, (folder / "output.txt").read_text()
        states = [trial.state for trial in trials(folder)]
        processes = psutil.Process(process.pid).children(recursive=True)
        # The guard, the server, and the first of the processes that SGLang starts itself.
        if states == ["complete", "running"] and len(processes) >= 3:
            return processes
        time.sleep(0.2)
    pytest.fail("the second trial did not begin in time")


def test_killed_study_resumes_and_its_profile_serves(demo_model: Path, tmp_path: Path) -> None:
    """SIGKILL leaves no server; the resumed study ends in a profile that answers a request."""
    asked = ("tune", str(demo_model), "--prompts", str(prompts(tmp_path)))
    process = start(tmp_path, *asked, *SMALL_STUDY)
    servers = wait_for_second_server(process, tmp_path)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(servers, timeout=60)
    assert alive == []
    first = trials(tmp_path)[0]

    resumed = start(tmp_path, "tune", "--resume", "study")
    assert resumed.wait(timeout=LIMIT_S) == 0, (tmp_path / "output.txt").read_text()
    assert trials(tmp_path)[0] == first
    profile = load_profile(tmp_path / "out.yaml")
    assert profile.failed == ()
    assert profile.verdict.best is not None
    assert profile.verdict.best.algorithm == "NGRAM"
    assert all(point.repeats >= 3 for point in (*profile.baseline, *profile.points))

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = start(tmp_path, "serve", "out.yaml", "--port", str(port))
    try:
        wait_until_ready(server, port)
        answer = post(port, "/generate", {"text": "The capital of France is"})
        assert answer["text"]
        info = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info"))
        algorithm = None if profile.choice.config.is_plain else "NGRAM"
        assert info["speculative_algorithm"] == algorithm
        served = psutil.Process(server.pid).children(recursive=True)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)
    _, alive = psutil.wait_procs(served, timeout=60)
    assert alive == []


def wait_until_ready(server: subprocess.Popen[str], port: int) -> None:
    """Wait until the server takes requests."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        assert server.poll() is None, "autospec serve ended before it was ready"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.5)
    pytest.fail("the server was not ready in time")


def post(port: int, path: str, body: dict[str, object]) -> dict[str, object]:
    """Send JSON and read JSON."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return dict(json.load(answer))
