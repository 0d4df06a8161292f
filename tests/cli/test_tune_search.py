"""``autospec tune`` with its default sampler: it learns from real passes and says why it asks."""

from __future__ import annotations

from pathlib import Path

from autospec.profile import load_profile
from autospec.tune.study import Study
from tests.cli.conftest import Run


def test_each_trial_is_kept_and_shown_with_its_reason(
    run: Run, tune_arguments: list[object]
) -> None:
    """The reason names what was expected; it stands in the study and on standard error."""
    # The last of an option counts.
    space = ("--space", "tokens=4,8,16 breadth=1,2 match=BFS", "--max-trials", 3)
    result = run(*tune_arguments, *space, "--sampler", "structured")
    assert result.exit_code == 0, result.output
    with Study.open(Path("study")) as study:
        trials = [trial for trial in study.trials("tune") if not trial.config.is_plain]
    assert 1 <= len(trials) <= 3
    assert trials[0].reason.startswith("first of its method: expected ")
    for trial in trials:
        assert "accept length" in trial.reason
        assert f"[{trial.id}] {trial.config.label}: {trial.reason}" in result.stderr
    assert load_profile(Path("out.yaml")).provenance.sampler == "structured"
