"""``autospec tune`` through the front door, on real server processes that speak SGLang's HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import Result

from autospec import demo
from autospec.control.load import load_policy
from autospec.evidence import Interval, Noise
from autospec.profile import load_profile
from autospec.tune.study import Study, Trial
from autospec.tuning import arm
from autospec.tuning import run as tuning_run
from autospec.tuning.policy_file import fit_policy, policy_text
from tests.cli.conftest import Run, make_run, study_arguments, write_model, write_prompts


@pytest.fixture(autouse=True)
def no_server_left() -> object:
    """Whatever a test does, it leaves no process behind."""
    yield
    left = psutil.Process().children(recursive=True)
    assert left == []


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Result, Path]]:
    """One study run to its end with ``--json``, and the folder it ran in."""
    folder = tmp_path_factory.mktemp("finished")
    arguments = study_arguments(
        write_model(folder / "model"), write_prompts(folder / "prompts.jsonl")
    )
    with pytest.MonkeyPatch.context() as patches:
        result = make_run(patches, folder)(*arguments, "--json")
        assert result.exit_code == 0, result.output
        yield result, folder


def test_profile_holds_every_arm_with_its_repeats(finished: tuple[Result, Path]) -> None:
    """Both loads, three repeats at least, and the same profile in the study's folder."""
    _, folder = finished
    profile = load_profile(folder / "out.yaml")
    assert {point.config.algorithm for point in profile.points} == {"NGRAM"}
    assert len({point.config for point in profile.points}) == 2
    assert {point.concurrency for point in profile.baseline} == {1, 4}
    assert all(point.repeats >= 3 for point in (*profile.baseline, *profile.points))
    assert set(profile.schedule) == {1, 4}
    assert load_profile(folder / "study" / "profile.yaml") == profile


def test_the_runtime_policy_lies_beside_the_profile(finished: tuple[Result, Path]) -> None:
    """Fitted to the same study, in both places, and named in the result."""
    result, folder = finished
    path = folder / "out.policy.yaml"
    assert json.loads(result.stdout)["policy"] == "out.policy.yaml"
    fitted = fit_policy(load_profile(folder / "out.yaml"))
    assert path.read_text() == policy_text(fitted, "out.yaml")
    assert load_policy(folder / "study" / "profile.policy.yaml") == load_policy(path)


def test_noise_of_the_machine_is_measured_kept_and_said(finished: tuple[Result, Path]) -> None:
    """Plain decoding is launched once more, right after the baseline."""
    result, folder = finished
    noise = load_profile(folder / "out.yaml").noise
    assert noise is not None
    assert noise.repeats == 3
    assert [load.concurrency for load in noise.loads] == [1, 4]
    assert f"noise     {noise}" in result.stderr
    with Study.open(folder / "study") as study:
        assert [trial.kind for trial in study.trials()][:3] == ["tune", "noise", "tune"]


def test_step_times_are_the_servers_own(finished: tuple[Result, Path]) -> None:
    """Each arm at each load, with the batch that the server ran and the steps it counted."""
    _, folder = finished
    profile = load_profile(folder / "out.yaml")
    assert {row.config for row in profile.step_times} == {
        point.config for point in (*profile.baseline, *profile.points)
    }
    alone = [row for row in profile.step_times if row.concurrency == 1]
    assert {row.batch_size for row in alone} == {1.0}
    assert all(row.step_time_ms >= 1.0 and row.num_steps > 0 for row in profile.step_times)


def test_json_is_the_whole_result_alone_on_stdout(finished: tuple[Result, Path]) -> None:
    """A program can read standard output; progress goes to standard error."""
    result, folder = finished
    document = json.loads(result.stdout)
    profile = load_profile(folder / "out.yaml")
    assert document["path"] == "out.yaml"
    assert document["profile"]["verdict"]["decision"] == profile.verdict.decision


def test_every_arm_is_admitted_alike(finished: tuple[Result, Path]) -> None:
    """SGLang lowers the limit to 48 under speculation only; autospec gives it to all arms."""
    _, folder = finished
    with Study.open(folder / "study") as study:
        resolved = [study.measurement(trial.id).resolved for trial in study.trials()]
    assert len(resolved) >= 3
    assert len({r["max_running_requests"] for r in resolved}) == 1
    assert len({r["mem_fraction_static"] for r in resolved}) == 1


def test_plan_comes_before_the_first_launch(finished: tuple[Result, Path]) -> None:
    """Launches and expected time are said first."""
    result, _ = finished
    lines = result.stderr.splitlines()
    plan = next(i for i, line in enumerate(lines) if line.startswith("plan"))
    launch = next(i for i, line in enumerate(lines) if line.startswith("[1] PLAIN"))
    assert plan < launch
    assert "launches" in lines[plan]
    assert "about" in lines[plan]


def test_result_can_be_shown_again(finished: tuple[Result, Path], run: Run) -> None:
    """A finished study resumed measures nothing; it prints the table and how to serve."""
    _, folder = finished
    with Study.open(folder / "study") as study:
        before = study.trials()
    result = run("tune", "--resume", folder / "study", "-o", "again.yaml")
    assert result.exit_code == 0, result.output
    with Study.open(folder / "study") as study:
        assert study.trials() == before
    assert "0 launches: 0 for plain decoding, 0 trials, 0 to confirm" in result.stderr
    for shown in ("PLAIN", "NGRAM tokens=8", "vs plain", "verdict", "autospec serve again.yaml"):
        assert shown in result.stdout
    kind = load_policy(Path("again.policy.yaml")).kind
    assert f"policy    again.policy.yaml: {kind}" in result.stdout
    assert f"policy    again.policy.yaml: {kind}" in run("show", "again.yaml").stdout


def test_what_the_server_changed_is_shown(
    run: Run, tune_arguments: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang adjusts settings silently; autospec compares and says so, and keeps it."""
    line = "page_size: asked 16, got 1"
    monkeypatch.setattr(arm, "adjusted", lambda _asked, _resolved: (line,))
    result = run(*tune_arguments, "--max-trials", 1)
    assert f"the server changed {line}" in result.stderr
    with Study.open(Path("study")) as study:
        assert study.measurement(1).adjusted == (line,)


def test_settings_of_every_arm_reach_every_arm(run: Run, tune_arguments: list[object]) -> None:
    """What the user pins is pinned for plain decoding too."""
    pinned = ("--max-total-tokens", 9000, "--page-size", 1, "--attention-backend", "intel_amx")
    extra = ("--", "--chunked-prefill-size", "512")
    result = run(*tune_arguments, "--max-trials", 1, *pinned, *extra)
    assert result.exit_code == 0, result.output
    with Study.open(Path("study")) as study:
        resolved = [study.measurement(trial.id).resolved for trial in study.trials()]
    for name, value in {
        "max_total_tokens": 9000,
        "page_size": 1,
        "attention_backend": "intel_amx",
        "chunked_prefill_size": 512,
    }.items():
        assert {r[name] for r in resolved} == {value}


def test_max_trials_is_obeyed_and_a_resume_may_raise_it(
    run: Run, tune_arguments: list[object]
) -> None:
    """A finished study can go on; nothing measured is measured again."""
    assert run(*tune_arguments, "--max-trials", 1).exit_code == 0
    with Study.open(Path("study")) as study:
        before = study.trials("tune")
    result = run("tune", "--resume", "study", "--max-trials", 2, "-o", "more.yaml")
    assert result.exit_code == 0, result.output
    with Study.open(Path("study")) as study:
        after = study.trials("tune")
    assert after[: len(before)] == before
    assert len(after) == len(before) + 1
    assert len({p.config for p in load_profile("more.yaml").points}) == 2


def test_changed_prompt_file_is_not_resumed(
    run: Run, tune_arguments: list[object], prompts: Path
) -> None:
    """Figures over other prompts would not be comparable."""
    assert run(*tune_arguments, "--max-trials", 1).exit_code == 0
    prompts.write_text(prompts.read_text().replace("topic", "matter"))
    result = run("tune", "--resume", "study")
    assert result.exit_code == 1
    assert "prompt file" in result.stderr


def test_resume_takes_everything_else_from_the_study(run: Run) -> None:
    """An option that the study has fixed is a usage error, before anything happens."""
    result = run("tune", "--resume", "study", "--seed", 3)
    assert result.exit_code == 2
    assert "seed cannot be given" in result.stderr


def test_demo_run_again_only_shows_its_result(
    run: Run, model: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo as it is has one study: a second run measures nothing more."""
    monkeypatch.setattr(demo, "model_path", lambda _notify: model)
    monkeypatch.setattr(demo, "prompts_path", lambda: prompts)
    monkeypatch.setattr(demo, "draft_path", lambda: None)
    first = run("tune", "--demo", "--max-trials", 1)
    assert first.exit_code == 0, first.output
    with Study.open(Path("autospec-studies", "demo")) as study:
        before = study.trials()
    second = run("tune", "--demo")
    assert second.exit_code == 0, second.output
    assert "going on with autospec-studies/demo" in second.stderr
    assert "autospec serve demo.yaml" in second.stdout
    with Study.open(Path("autospec-studies", "demo")) as study:
        assert study.trials() == before


def test_demo_with_other_settings_is_a_study_of_its_own(
    run: Run, model: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What changes a study never goes into the demo's own."""
    monkeypatch.setattr(demo, "model_path", lambda _notify: model)
    monkeypatch.setattr(demo, "prompts_path", lambda: prompts)
    monkeypatch.setattr(demo, "draft_path", lambda: None)
    arguments = ("--concurrency", "1", "--requests-per-pass", 2, "--max-trials", 1)
    result = run("tune", "--demo", *arguments, "--space", "tokens=4 breadth=1 match=BFS")
    assert result.exit_code == 0, result.output
    assert not Path("autospec-studies", "demo").exists()
    assert len(list(Path("autospec-studies").iterdir())) == 1


def trials(kind: str | None = None) -> tuple[Trial, ...]:
    """The study's trials."""
    with Study.open(Path("study")) as study:
        return study.trials(kind)


@pytest.fixture
def eagle_arguments(model: Path, tmp_path: Path) -> list[object]:
    """A study of one candidate that is clearly faster than plain decoding: its prompts repeat."""
    draft = write_model(tmp_path / "draft")
    prompts = tmp_path / "repeating.txt"
    prompts.write_text("".join(f"{'again ' * 20}{number}\n" for number in range(24)))
    return [
        *("tune", model, "--prompts", prompts, "--device", "cpu", "--max-new-tokens", 24),
        *("--requests-per-pass", 4, "--concurrency", 1, "--algorithm", "EAGLE"),
        *("--draft", f"EAGLE={draft}", "--space", "steps=3 topk=1", "--sampler", "grid"),
        *("--study", "study", "-o", "out.yaml"),
    ]


def test_clear_win_is_confirmed_in_one_round(run: Run, eagle_arguments: list[object]) -> None:
    """Three launches decide, the answers are compared, and the winner is deployed."""
    result = run(*eagle_arguments)
    assert result.exit_code == 0, result.output
    assert "2 for plain decoding, 1 trials, 3 to confirm (up to 9 while unclear)" in result.stderr
    assert len(trials("confirm")) == 3
    profile = load_profile("out.yaml")
    assert profile.verdict.decision == "faster"
    assert profile.choice.config.algorithm == "EAGLE"
    assert profile.lossless is not None
    assert profile.lossless.decision == "identical"
    assert {p.repeats for p in profile.points if p.part == "confirm"} == {6}
    assert "Held-out prompts, 6 passes a row" in result.stdout
    assert "lossless  identical: 11 of 11 greedy answers the same" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_unclear_comparison_goes_on_to_the_cap(
    run: Run, eagle_arguments: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine whose launches differ by a factor, nothing is clear; the rounds end."""
    noise = Noise(Interval(1.0, 0.4, 2.7), floor=1.0, repeats=3, loads=())
    monkeypatch.setattr(tuning_run, "known_noise", lambda *_: noise)
    result = run(*eagle_arguments, "--confirm-rounds", 2)
    assert result.exit_code == 0, result.output
    assert len(trials("confirm")) == 6
    profile = load_profile("out.yaml")
    assert profile.verdict.decision == "inconclusive"
    assert "after 12 pairs, the most allowed" in profile.verdict.reason
    assert "noise" in profile.verdict.reason
    assert profile.choice.config.is_plain


def test_lossy_winner_is_flagged_and_deployed_only_when_allowed(
    run: Run, eagle_arguments: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another answer to every prompt: plain decoding is deployed until the user says otherwise."""
    monkeypatch.setenv("FAKE_SGLANG_FAULT", "lossy:1@EAGLE")
    result = run(*eagle_arguments)
    assert result.exit_code == 0, result.output
    refused = load_profile("out.yaml")
    assert refused.verdict.decision == "faster"
    assert refused.lossless is not None
    assert refused.lossless.decision == "differs"
    assert refused.choice.config.is_plain
    assert "--allow-lossy" in refused.verdict.reason
    assert "lossless  differs: 0 of 11" in run("show", "out.yaml").stdout

    before = trials()
    result = run("tune", "--resume", "study", "--allow-lossy")
    assert result.exit_code == 0, result.output
    assert trials() == before
    allowed = load_profile("out.yaml")
    assert allowed.choice.config.algorithm == "EAGLE"
    assert allowed.lossless == refused.lossless
    assert "deployed by --allow-lossy" in allowed.verdict.reason


def test_confirmation_stopped_in_its_middle_goes_on(
    run: Run, eagle_arguments: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured stays; the answers that went with the session are asked for again."""
    measure = arm.Arms.measure

    def interrupted(self: arm.Arms, config: object, *args: object, **options: object) -> object:
        if options.get("part") == "confirm" and not config.is_plain:  # type: ignore[attr-defined]  # a SpecConfig
            raise KeyboardInterrupt
        return measure(self, config, *args, **options)  # type: ignore[arg-type]  # passed on as given

    with monkeypatch.context() as patches:
        patches.setattr(arm.Arms, "measure", interrupted)
        assert run(*eagle_arguments).exit_code == 130
    before = [trial for trial in trials() if trial.state == "complete"]
    assert [trial.kind for trial in before] == ["tune", "noise", "tune", "confirm"]
    result = run("tune", "--resume", "study")
    assert result.exit_code == 0, result.output
    after = [trial for trial in trials() if trial.state == "complete"]
    assert after[:4] == before
    assert [trial.kind for trial in after[4:]] == ["check", "confirm", "confirm"]
    profile = load_profile("out.yaml")
    assert profile.choice.config.algorithm == "EAGLE"
    assert profile.lossless is not None


def test_study_stopped_after_its_baseline_measures_the_noise_next(
    run: Run, eagle_arguments: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second launch of plain decoding is a trial like others: put back, and made again."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patches:
        patches.setattr(tuning_run, "launch_again", interrupted)
        assert run(*eagle_arguments).exit_code == 130
    result = run("tune", "--resume", "study")
    assert result.exit_code == 0, result.output
    assert "1 for plain decoding, 1 trials" in result.stderr
    assert [trial.kind for trial in trials()][:3] == ["tune", "noise", "tune"]


@pytest.mark.parametrize(("budget", "planned"), [("12m", 2), ("7m", 1)])
def test_plan_counts_the_noise_where_the_budget_holds_it(
    run: Run, eagle_arguments: list[object], budget: str, planned: int
) -> None:
    """The candidate comes before the machine's noise."""
    result = run(*eagle_arguments, "--budget", budget)
    assert result.exit_code == 0, result.output
    assert f"{planned} for plain decoding, 1 trials, 3 to confirm" in result.stderr
