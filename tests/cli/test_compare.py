"""``autospec compare`` through the front door, on servers that speak SGLang's HTTP."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autospec import schema
from autospec.bench.result import CompareResult
from autospec.engine.models import read_model
from autospec.profile import Profile, save_profile
from tests.cli.conftest import Run, write_model, write_prompts
from tests.cli.test_bench import NGRAM, SHORT, last_line
from tests.fake_sglang import FakeSGLang

QUICK = ("--concurrency", "2", "--requests-per-pass", 4, "--max-new-tokens", 8)


@pytest.fixture(autouse=True)
def no_server_left() -> object:
    """Whatever a test does, it leaves no process behind."""
    yield
    assert psutil.Process().children(recursive=True) == []


def read(text: str) -> CompareResult:
    """A result from its JSON."""
    return schema.load(CompareResult, json.loads(text), "result")


@pytest.mark.parametrize(("a_first", "decision"), [(True, "faster"), (False, "slower")])
def test_faster_server_is_called_faster(
    run: Run, prompts: Path, *, a_first: bool, decision: str
) -> None:
    """The verdict says what A is against B, at each load and over all, and stops early."""
    with FakeSGLang(step_s=0.004) as quick, FakeSGLang(step_s=0.008) as slow:
        urls = (quick.url, slow.url) if a_first else (slow.url, quick.url)
        result = run("compare", *urls, "--prompts", prompts, *SHORT, "--json", "-o", "c.json")
    assert result.exit_code == 0, result.output
    assert Path("c.json").read_text() == result.stdout
    found = read(result.stdout)
    assert found.decision == decision
    assert (found.ratio.value > 1.3) == a_first
    assert set(found.loads) == {"1", "4"}
    assert 5 <= found.pairs < 20
    assert found.order == "passes"
    assert not found.same
    assert len(found.a.loads[0].throughputs) == len(found.b.loads[0].throughputs) == found.pairs


def test_passes_alternate_and_send_the_same_prompts(run: Run, prompts: Path) -> None:
    """A B B A: in any pair of passes both servers got the same prompts."""
    with FakeSGLang() as a, FakeSGLang() as b:
        result = run("compare", a.url, b.url, "--prompts", prompts, *QUICK, "--max", 5)
        assert result.exit_code == 0, result.output
        mine, others = ([r["input_ids"] for r in fake.server.requests] for fake in (a, b))
    assert mine == others
    made = [line.split()[2] for line in result.stderr.splitlines() if line.startswith("pass ")]
    assert made == list("ABBAABBAAB")


def test_same_server_twice_is_an_a_a_test(run: Run, prompts: Path) -> None:
    """It is called what it is, and not faster than itself."""
    with FakeSGLang(step_s=0.004) as fake:
        url = fake.url
        result = run("compare", url, url, "--prompts", prompts, *QUICK, "--max", 6)
        as_json = run("compare", url, url, "--prompts", prompts, *QUICK, "--max", 6, "--json")
    assert result.exit_code == 0, result.output
    assert "A/A test" in result.stdout
    found = read(as_json.stdout)
    assert found.same
    assert found.decision in ("equivalent", "inconclusive")


def test_two_configurations_take_turns_by_launches(
    run: Run, model: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A, B twice as long, A: three launches a round, never two at once."""
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ("compare", "PLAIN", NGRAM, "--model", model, "--device", "cpu")
    result = run(*arguments, "--prompts", prompts, *QUICK, "--max", 6, "-o", "c.json")
    assert result.exit_code == 0, result.output
    found = read(Path("c.json").read_text())
    assert (found.order, found.pairs) == ("launches", 6)
    assert (len(found.a.launch_s), len(found.b.launch_s)) == (2, 1)
    made = [line.split()[2] for line in result.stderr.splitlines() if line.startswith("pass ")]
    assert made == list("AAABBBBBBAAA")
    assert found.unfair == ()
    assert found.a.subject.digest == found.b.subject.digest
    tables = [line for line in result.stdout.splitlines() if line.startswith((" ", "─"))]
    assert max(map(len, tables)) <= 80
    for shown in ("verdict", "A of B", "accept_length", "launches took turns"):
        assert shown in result.stdout


@pytest.mark.usefixtures("profile")
def test_configuration_beside_a_profile_is_launched_as_the_profile_says(
    run: Run, profile: Profile, prompts: Path
) -> None:
    """Same model, limits and device; only the speculation differs."""
    arguments = ("compare", "p.yaml", "PLAIN", "--prompts", prompts, *QUICK, "--max", 5, "--json")
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    found = read(result.stdout)
    assert found.a.subject.config == profile.choice.config
    assert found.b.subject.config.is_plain
    assert found.b.subject.model == found.a.subject.model == profile.target.model
    assert found.b.subject.resolved["max_running_requests"] == 48
    assert found.a.subject.resolved["max_running_requests"] == 48


def test_launched_configuration_against_a_running_server(
    run: Run, model: Path, prompts: Path
) -> None:
    """What one runs and the other is launched can be compared where both serve one model."""
    path = str(model.resolve())
    with FakeSGLang(model_path=path, max_running_requests=48) as fake:
        result = run(
            *("compare", "PLAIN", fake.url, "--model", model, "--device", "cpu", "--json"),
            *("--prompts", prompts, *QUICK, "--max", 5),
        )
    assert result.exit_code == 0, result.output
    found = read(result.stdout)
    assert (len(found.a.launch_s), found.b.launch_s) == (2, ())


@pytest.mark.parametrize(
    ("field", "mine", "other"),
    [
        ("max_running_requests", 8, 16),
        ("dtype", "float32", "bfloat16"),
        ("context_length", 1024, 2048),
        ("tp_size", 1, 2),
        ("device", "cpu", "cuda"),
        ("model_path", "m/one", "m/two"),
    ],
)
def test_unfair_pair_is_refused_before_anything_is_sent(
    run: Run, prompts: Path, field: str, mine: object, other: object
) -> None:
    """The field and both values are named."""
    one: dict[str, Any] = {field: mine}
    two: dict[str, Any] = {field: other}
    with FakeSGLang(**one) as a, FakeSGLang(**two) as b:
        result = run("compare", a.url, b.url, "--prompts", prompts, *QUICK)
        assert a.server.requests == b.server.requests == []
    assert result.exit_code == 1
    line = last_line(result.stderr)
    assert field.replace("model_path", "model path") in line
    assert repr(mine) in line
    assert repr(other) in line


def test_unfair_pair_is_compared_and_shown_by_force(run: Run, prompts: Path) -> None:
    """So are the differences that are no reason to refuse."""
    with (
        FakeSGLang(max_running_requests=8, max_total_tokens=9000) as a,
        FakeSGLang(max_running_requests=16) as b,
    ):
        result = run("compare", a.url, b.url, "--prompts", prompts, *QUICK, "--max", 5, "--force")
    assert result.exit_code == 0, result.output
    assert "unfair    max_running_requests: 8 / 16" in result.stdout
    assert "differs   max_total_num_tokens: 9000 / 20000" in result.stdout


def test_configurations_of_limits_that_differ_are_refused_before_a_launch(
    run: Run, profile: Profile, tmp_path: Path, prompts: Path
) -> None:
    """Two profiles with different admission limits."""
    arguments = {**profile.choice.server_args, "max_running_requests": 64}
    other = replace(profile, choice=replace(profile.choice, server_args=arguments))
    save_profile(tmp_path / "q.yaml", other)
    result = run("compare", "p.yaml", "q.yaml", "--prompts", prompts, *QUICK)
    assert result.exit_code == 1
    assert "max_running_requests is 48 for p.yaml and 64 for q.yaml" in last_line(result.stderr)
    assert "launching" not in result.stderr


def test_server_that_dies_in_mid_comparison_gives_one_line_and_no_figure(
    run: Run, model: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which died and of what; the other server is stopped too."""
    monkeypatch.setenv("FAKE_SGLANG_FAULT", "die_after:20@NGRAM")
    result = run(
        *("compare", "PLAIN", NGRAM, "--model", model, "--device", "cpu", "--json"),
        *("--prompts", prompts, *QUICK),
    )
    assert result.exit_code == 1
    assert "the server died" in last_line(result.stderr)
    assert result.stdout == ""


def test_lost_request_ends_the_comparison(run: Run, prompts: Path) -> None:
    """A pass with a lost request has no figure, so there is no ratio."""
    with FakeSGLang() as a, FakeSGLang("http500:30") as b:
        result = run("compare", a.url, b.url, "--prompts", prompts, *QUICK, "--json")
    assert result.exit_code == 1
    assert "500" in last_line(result.stderr)
    assert result.stdout == ""


def test_kept_results_of_the_same_prompts_are_compared(run: Run, prompts: Path) -> None:
    """Paired by repeat, and it is said that nothing took turns."""
    with FakeSGLang(step_s=0.004) as quick, FakeSGLang(step_s=0.008) as slow:
        for name, fake in (("quick", quick), ("slow", slow)):
            kept = run("bench", fake.url, "--prompts", prompts, *SHORT, "-o", f"{name}.json")
            assert kept.exit_code == 0, kept.output
    result = run("compare", "slow.json", "quick.json", "--json")
    assert result.exit_code == 0, result.output
    found = read(result.stdout)
    assert (found.decision, found.order, found.pairs) == ("slower", "none", 3)
    assert "nothing took turns" in run("compare", "slow.json", "quick.json").stdout


def test_kept_results_of_other_prompts_are_not_compared(
    run: Run, prompts: Path, tmp_path: Path
) -> None:
    """Their ratio would be that of the prompts."""
    with FakeSGLang() as fake:
        assert run("bench", fake.url, "--prompts", prompts, *QUICK, "-o", "a.json").exit_code == 0
        more = write_prompts(tmp_path / "more.jsonl", 30)
        assert run("bench", fake.url, "--prompts", more, *QUICK, "-o", "b.json").exit_code == 0
    result = run("compare", "a.json", "b.json")
    assert result.exit_code == 1
    assert "prompts of a.json and b.json differ" in last_line(result.stderr)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": 9}', '{"schema": 1, "x": 2}'])
def test_what_is_no_kept_result_is_refused(run: Run, content: str) -> None:
    """By the file's name."""
    Path("a.json").write_text(content)
    result = run("compare", "a.json", "a.json")
    assert result.exit_code == 2
    assert "a.json" in last_line(result.stderr)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("http://h:1", "http://h:2", "--min", "2"), "least repeats are 2"),
        (("http://h:1", "http://h:2", "--max", "4"), "most repeats are 4"),
        (("a.json", "http://h:1"), "result of bench -o"),
        (("PLAIN", "http://h:1"), "--model"),
        (("p.yaml", "PLAIN", "--dtype", "float32"), "--dtype float32"),
    ],
)
@pytest.mark.usefixtures("profile")
def test_what_cannot_be_is_refused(
    run: Run, prompts: Path, arguments: tuple[str, ...], named: str
) -> None:
    """One line that names it, exit code 2."""
    result = run("compare", *arguments, "--prompts", prompts, "--concurrency", "2")
    assert result.exit_code == 2, result.output
    assert named in last_line(result.stderr)


def test_other_model_of_two_launches_is_seen_by_its_digest(
    run: Run, profile: Profile, tmp_path: Path, prompts: Path
) -> None:
    """Two profiles of two models are no comparison of speculation."""
    other = read_model(str(write_model(tmp_path / "other")))
    moved = profile.with_model(other.name)
    moved = replace(moved, target=replace(moved.target, digest=other.digest))
    save_profile(tmp_path / "q.yaml", moved)
    result = run("compare", "p.yaml", "q.yaml", "--prompts", prompts, *QUICK)
    assert result.exit_code == 1
    assert "model digest" in last_line(result.stderr)
