"""``autospec tune`` with other objectives, with classes, and with an n-gram corpus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result

from autospec.config import PLAIN
from autospec.profile import load_profile
from autospec.tune.study import Study
from autospec.tuning.corpus import check_corpus
from tests.cli.conftest import Run, make_run, study_arguments, write_model, write_prompts


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Result, Path, Run]]:
    """A study with two classes and a corpus, run to its end, and the folder it ran in."""
    folder = tmp_path_factory.mktemp("goals")
    arguments = study_arguments(
        write_model(folder / "model"), write_prompts(folder / "prompts.jsonl", 40)
    )
    space = arguments.index("--space")
    arguments[space + 1] = "tokens=8 breadth=2 match=BFS sam_budget=4"
    with pytest.MonkeyPatch.context() as patches:
        run = make_run(patches, folder)
        result = run(*arguments, "--corpus", "answers")
        assert result.exit_code == 0, result.output
        yield result, folder, run


def test_classes_have_rows_in_profile_and_output(finished: tuple[Result, Path, Run]) -> None:
    """Best configuration, acceptance and what one for all costs, at 80 columns, for each class."""
    result, folder, run = finished
    profile = load_profile(folder / "out.yaml")
    assert [row.part for row in profile.winners] == [
        "concurrency 1",
        "concurrency 4",
        "chat",
        "edit",
    ]
    assert {row.config for row in profile.winners} <= {PLAIN, *(p.config for p in profile.points)}
    assert {row.label for row in profile.acceptance} == {None, "chat", "edit"}
    shown = run("show", "out.yaml").stdout
    for text in (result.stdout, shown):
        assert "Best for each load and class alone" in text
        lines = [line for line in text.splitlines() if line.strip().startswith(("chat", "edit"))]
        assert len(lines) >= 2
        assert all(len(line) <= 80 for line in lines)


def test_corpus_is_built_from_prompts_that_no_pass_sends(
    finished: tuple[Result, Path, Run],
) -> None:
    """By the second launch of plain decoding, and searched with its budget beside no corpus."""
    _, folder, _ = finished
    corpus = folder / "out.corpus.jsonl"
    texts = [json.loads(line) for line in corpus.read_text().splitlines()]
    assert corpus.stat().st_mode & 0o077 == 0
    profile = load_profile(folder / "out.yaml")
    assert texts
    assert all(isinstance(text, str) for text in texts)
    assert sum(profile.workload.prompts.values()) == 40
    assert profile.workload.prompts["corpus"] == len(texts)
    best = profile.verdict.best
    drafts_from_it = best is not None and best.corpus is not None
    assert profile.target.corpus_digest == (check_corpus(corpus) if drafts_from_it else None)
    with Study.open(folder / "study") as study:
        trials = study.trials()
        measured = [study.measurement(t.id) for t in trials if t.state == "complete"]
    sent = {record.prompt for one in measured for record in one.records()}
    assert len(sent) <= profile.workload.prompts["tune"] + profile.workload.prompts["confirm"]
    assert [trial.kind for trial in trials][:3] == ["tune", "noise", "tune"]
    budgets = {trial.config.option("ngram_external_sam_budget") for trial in trials}
    assert budgets == {None, 4}
    stored = (folder / "study" / "study.sqlite").read_bytes()
    assert not any(text.encode() in stored for text in texts)


def test_latency_is_decided_by_time_per_token(run: Run, model: Path, prompts: Path) -> None:
    """The verdict says what it is about, and so does the table."""
    result = run(*study_arguments(model, prompts), "--objective", "latency")
    assert result.exit_code == 0, result.output
    profile = load_profile(Path("out.yaml"))
    assert profile.verdict.objective == "latency"
    assert profile.verdict.slo is None
    assert "tpot_ms" in profile.verdict.reason
    assert "tpot ms" in result.stdout


def test_goodput_is_decided_by_requests_within_their_limits(
    run: Run, model: Path, prompts: Path
) -> None:
    """The limits are kept with the verdict, and every row has its goodput."""
    result = run(
        *study_arguments(model, prompts), "--objective", "goodput", "--slo", "e2e_latency_ms=1000"
    )
    assert result.exit_code == 0, result.output
    profile = load_profile(Path("out.yaml"))
    assert (profile.verdict.objective, profile.verdict.slo) == ("goodput", "e2e_latency_ms=1000.0")
    rows = (*profile.baseline, *profile.points)
    assert all(row.request_goodput is not None and row.request_goodput > 0 for row in rows)
    assert "goodput" in result.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--objective", "goodput"), "goodput needs --slo"),
        (("--slo", "tpot_ms=3"), "goodput needs --slo"),
        (("--objective", "goodput", "--slo", "speed=3"), "'speed=3'"),
        (("--finalists", 0), "finalists is 0"),
        (("--corpus", "none.jsonl"), "none.jsonl: cannot be read"),
        (("--corpus", "answers", "--algorithm", "STANDALONE"), "a corpus is for NGRAM"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_any_launch(
    run: Run, model: Path, prompts: Path, options: tuple[object, ...], said: str
) -> None:
    """In one line, and no study is begun."""
    small = ("--device", "cpu", "--concurrency", 1, "--study", "s")
    result = run("tune", model, "--prompts", prompts, *small, *options)
    assert result.exit_code != 0
    assert said in result.stderr
    assert not Path("s").exists()


def test_candidate_that_is_clearly_behind_is_stopped(run: Run, model: Path, prompts: Path) -> None:
    """The table of the study says so, and the profile lists it with what it showed."""
    arguments = study_arguments(model, prompts)
    space = arguments.index("--space")
    arguments[space + 1] = "tokens=4,8,12,32 breadth=1,2 match=BFS"
    result = run(*arguments, "--repeats", 4, "--race")
    assert result.exit_code == 0, result.output
    profile = load_profile(Path("out.yaml"))
    with Study.open(Path("study")) as study:
        stopped = [trial for trial in study.trials("tune") if trial.state == "pruned"]
        runs = [len(study.measurement(trial.id).runs) for trial in stopped]
    assert {trial.config for trial in stopped} == {row.config for row in profile.stopped}
    assert {trial.config.num_draft_tokens for trial in stopped} >= {32}
    assert all(made < 8 for made in runs)
    for trial in stopped:
        assert "pruned: stopped after" in result.stderr
        assert f"{trial.config.label}: stopped after" in result.stdout
