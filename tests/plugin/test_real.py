"""The plugin in the real engine on the CPU: lossless through every switch, harmless when it fails.

In float32, as ``tests/real_engine.py`` explains.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Protocol

import pytest
from click.testing import CliRunner

from autospec import demo
from autospec.cli import cli
from autospec.config import PLAIN, SpecConfig
from autospec.control.status import PluginStatus, read_status, status_path
from autospec.control.trace import read_trace
from autospec.evidence import StepTime
from autospec.profile import ArgValue, save_profile
from tests.real_engine import NUM_PROMPTS, Answers, ask, serving
from tests.test_profile import make_profile

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
NGRAM = SpecConfig("NGRAM", num_draft_tokens=8, options=(("ngram_max_bfs_breadth", 4),))

#: Prompts where what counts is that the server answers.
FEW = 3


class Serve(Protocol):
    """Starts a server with these variables and asks it."""

    def __call__(
        self, config: SpecConfig, variables: Mapping[str, str], count: int = NUM_PROMPTS
    ) -> tuple[Answers, PluginStatus, str]:
        """Its answers, the plugin's last word, and its metrics."""


@pytest.fixture
def serve(demo_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """What a server answers, says of its plugin, and shows at /metrics."""
    monkeypatch.setenv("AUTOSPEC_CACHE", str(tmp_path))

    def served(
        config: SpecConfig, variables: Mapping[str, str], count: int = NUM_PROMPTS
    ) -> tuple[Answers, PluginStatus, str]:
        log = tmp_path / "server.log"
        inherited = {"AUTOSPEC_CACHE": str(tmp_path), **variables}
        with serving(demo_model, config, log, inherited) as (server, _):
            answers = asyncio.run(ask(server.url, count))
            time.sleep(2.0)
            with urllib.request.urlopen(f"{server.url}/metrics") as metrics:
                text = metrics.read().decode()
            return answers, read_status(status_path(server.port)), text

    return served


def chain(algorithm: str, draft: Path | None) -> SpecConfig:
    """A chain of three drafts."""
    assert draft is not None
    return SpecConfig(algorithm, 3, 1, 4, str(draft))


@pytest.mark.parametrize("method", ["NGRAM", "STANDALONE", "EAGLE"])
def test_forced_switching_changes_no_answer(
    method: str, plain: Answers, eagle_draft: Path, serve: Serve, tmp_path: Path
) -> None:
    """Greedy outputs equal plain decoding's, token by token, through dozens of switches."""
    drafts = {"STANDALONE": demo.draft_path(), "EAGLE": eagle_draft}
    config = NGRAM if method == "NGRAM" else chain(method, drafts[method])
    policy = tmp_path / "forced.yaml"
    passes = tmp_path / "passes.json"
    parameters = {"every": 3, "depths": [0, 1, 3], "passes": str(passes)}
    asked = {"schema": 1, "kind": "tests.plugin.forced:Watched", "parameters": parameters}
    policy.write_text(json.dumps(asked))
    answers, status, metrics = serve(config, {"AUTOSPEC_POLICY": str(policy)})
    assert answers.output_ids == plain.output_ids
    assert status.active
    assert status.switching == ("on-off" if method == "NGRAM" else "depth")
    assert status.depths == ((0, 7) if method == "NGRAM" else (0, 1, 3))
    assert min(status.counters["fallbacks"], status.counters["recoveries"]) >= 8
    assert status.counters["errors"] == 0
    assert 'autospec:active{dp_rank="0"} 1.0' in metrics
    steps = status.counters["plain_steps"]
    assert f'autospec:plain_steps_total{{dp_rank="0"}} {float(steps)}' in metrics
    ran = json.loads(passes.read_text())
    assert "TARGET_VERIFY 1" not in ran, "a plain step that cost more than a decode step"
    assert abs(ran["DECODE 1"] - steps) <= 2
    assert (status.counters["shadow_drafts"] > 0) == (method == "NGRAM")


@pytest.mark.parametrize(
    ("method", "variables", "says"),
    [
        ("NGRAM", {"AUTOSPEC_PROFILE": "/no/profile.yaml"}, "/no/profile.yaml: cannot be read"),
        ("NGRAM", {"AUTOSPEC_POLICY": "tests.plugin.forced:Failing"}, "a fault in a user's policy"),
        ("STANDALONE", {"AUTOSPEC_POLICY": "tests.plugin.forced:Lost"}, "switches the depth"),
        ("STANDALONE", {"AUTOSPEC_POLICY": "unready.yaml"}, "switches the depth"),
        ("NGRAM", {"AUTOSPEC_POLICY": "tests.plugin.forced:Shadowless"}, "switches NGRAM"),
    ],
)
def test_fault_of_the_plugin_is_none_of_the_servers(
    method: str,
    variables: Mapping[str, str],
    says: str,
    *,
    plain: Answers,
    serve: Serve,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It goes on answering as it was started, and says what is wrong."""
    unready = tmp_path / "unready.yaml"
    unready.write_text(
        "schema: 1\nkind: tests.plugin.forced:Unready\nparameters: {depths: [0, 1, 3]}\n"
    )
    monkeypatch.chdir(tmp_path)
    config = NGRAM if method == "NGRAM" else chain(method, demo.draft_path())
    answers, status, _ = serve(config, variables, FEW)
    assert answers.output_ids == plain.output_ids[:FEW]
    assert says in status.reason
    assert status.active == says.startswith("switches")
    assert status.depths == ((7,) if "no/profile" in says else status.depths)
    if variables == {"AUTOSPEC_POLICY": "unready.yaml"}:
        assert status.depths == (0, 3)
        assert status.counters["errors"] == 1
        assert status.counters["switches"] > 0


def test_trace_is_recorded_and_can_be_replayed(serve: Serve, tmp_path: Path) -> None:
    """Every decode step at full depth, in the form that ``autospec replay policy`` reads."""
    path = tmp_path / "trace.jsonl"
    answers, status, _ = serve(NGRAM, {"AUTOSPEC_TRACE": str(path)}, FEW)
    trace = read_trace(path)
    assert (trace.algorithm, trace.depth, trace.topk) == ("NGRAM", 7, 1)
    assert len(trace.steps) == status.steps
    # ``ask`` sends everything twice and keeps the records of the second time.
    verified = sum(record.verify_ct or 0 for record in answers.records)
    assert sum(len(step.correct) for step in trace.steps) >= 2 * verified * 0.9
    assert all(step.time_s >= 0 for step in trace.steps)
    costs = {"schema": 1, "step_time_ms": {"0": {"1": 10, "12": 20}, "7": {"1": 15, "12": 50}}}
    (tmp_path / "costs.json").write_text(json.dumps(costs))
    with_costs = ["--costs", str(tmp_path / "costs.json"), "--json"]
    result = CliRunner().invoke(
        cli, ["replay", "policy", str(path), "--policy", "throughput", *with_costs]
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["throughput"] > 0


def test_shadow_drafts_are_right_as_often_as_verified_ones(serve: Serve, tmp_path: Path) -> None:
    """What a server that speculates finds, one that decodes plainly foresees, for the same text.

    But for the ends of answers, which a verified draft may overrun, and for a corpus that learns a
    plain step's token sooner than those of a speculative one.
    """
    trace, seen, policy = (tmp_path / name for name in ("trace.jsonl", "seen.json", "plain.json"))
    _, verified, _ = serve(NGRAM, {"AUTOSPEC_TRACE": str(trace)}, FEW)
    found = [count for step in read_trace(trace).steps for count in step.correct]
    asked = {"schema": 1, "kind": "tests.plugin.forced:Plain", "parameters": {"seen": str(seen)}}
    policy.write_text(json.dumps(asked))
    _, plain, _ = serve(NGRAM, {"AUTOSPEC_POLICY": str(policy)}, FEW)
    foreseen = json.loads(seen.read_text())
    assert verified.counters["plain_steps"] == plain.counters["speculative_steps"] == 0
    assert plain.counters["shadow_drafts"] == pytest.approx(len(foreseen), abs=FEW)
    assert fmean(foreseen) == pytest.approx(fmean(found), rel=0.35)
    assert len(foreseen) > 100


def test_serve_starts_a_steered_server_and_by_hand_the_same(
    demo_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``serve`` says that the policy is at work; so does ``sglang.Engine`` with the environment."""
    cache = tmp_path / "cache"
    rows = (StepTime(PLAIN, 1, 1.0, 10.0, 99), StepTime(NGRAM, 1, 1.0, 14.0, 99))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments: dict[str, ArgValue] = {
        "model_path": str(demo_model),
        "device": "cpu",
        "max_running_requests": 8,
        "mem_fraction_static": 0.2,
        "speculative_algorithm": "NGRAM",
        "speculative_num_draft_tokens": 8,
        "speculative_ngram_max_bfs_breadth": 4,
    }
    base = make_profile(step_times=rows)
    environment = replace(base.environment, device="cpu")
    choice = replace(base.choice, config=NGRAM, server_args={**arguments, "port": port})
    path = tmp_path / "p.yaml"
    save_profile(path, replace(base, environment=environment, choice=choice))
    # The model is found by its path; only the plugin's word goes to a folder of this test.
    inherited = {**os.environ, "AUTOSPEC_CACHE": str(cache)}
    monkeypatch.setenv("AUTOSPEC_CACHE", str(cache))

    offline = [sys.executable, "examples/offline_engine.py", str(path), "The capital of France is"]
    subprocess.run(offline, cwd=ROOT, env=inherited, timeout=300, check=True)
    by_hand = read_status(status_path(port))
    assert by_hand.active
    assert by_hand.profile == str(path)
    assert by_hand.steps > 0

    choice = replace(base.choice, config=NGRAM, server_args=arguments)
    save_profile(path, replace(base, environment=environment, choice=choice))
    program = "from autospec.cli import main; main()"
    command = [sys.executable, "-c", program, "serve", str(path), "--force"]
    said: list[str] = []
    with subprocess.Popen(
        [*command, "--port", str(port)],
        env=inherited,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line.strip())
            if line.startswith("ready"):
                process.send_signal(signal.SIGTERM)
    assert "plugin: switches NGRAM on and off" in said
