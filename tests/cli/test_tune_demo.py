"""``autospec tune --demo`` and the drafter that may have come along."""

from __future__ import annotations

from pathlib import Path

import pytest

from autospec import demo
from autospec.tune.study import Study
from tests.cli.conftest import Run, write_model

SMALL = ("--concurrency", "1", "--requests-per-pass", 2, "--max-trials", 1, "--study", "study")


@pytest.fixture(autouse=True)
def demo_of_fakes(model: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is fetched: the demo has the model and the prompts of these tests."""
    monkeypatch.setattr(demo, "model_path", lambda _notify: model)
    monkeypatch.setattr(demo, "prompts_path", lambda: prompts)


@pytest.fixture
def draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A drafter beside the package."""
    folder = write_model(tmp_path / "draft")
    monkeypatch.setattr(demo, "draft_path", lambda: folder)
    return folder


def tried(folder: str = "study") -> set[tuple[str, str | None]]:
    """Method and draft model of every trial that speculates."""
    with Study.open(Path(folder)) as study:
        configs = [trial.config for trial in study.trials("tune")]
    return {(config.algorithm, config.draft_model) for config in configs if not config.is_plain}


def test_demo_searches_the_drafter_that_came_along(run: Run, draft: Path) -> None:
    """It is a STANDALONE draft like any other."""
    result = run("tune", "--demo", *SMALL, "--algorithm", "standalone")
    assert result.exit_code == 0, result.output
    assert tried() == {("STANDALONE", str(draft))}


def test_demo_without_a_drafter_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-gram drafting is what is left, as in an installed wheel."""
    monkeypatch.setattr(demo, "draft_path", lambda: None)
    result = run("tune", "--demo", *SMALL)
    assert result.exit_code == 0, result.output
    assert "without examples/demo-draft" in result.stderr
    assert tried() == {("NGRAM", None)}


def test_demo_without_drafting_models_searches_ngram_only(run: Run, draft: Path) -> None:
    """Whoever asks for a method gets no draft model of another, and no word about one."""
    result = run("tune", "--demo", *SMALL, "--algorithm", "NGRAM")
    assert result.exit_code == 0, result.output
    assert "demo-draft" not in result.stderr
    assert tried() == {("NGRAM", None)}


def test_drafter_is_found_beside_the_package_only_when_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder without weights, or none at all, is no drafter."""
    monkeypatch.setattr(demo, "__file__", str(tmp_path / "autospec" / "demo.py"))
    assert demo.draft_path() is None
    folder = tmp_path / "examples" / "demo-draft"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert demo.draft_path() is None
    (folder / "model.safetensors").write_bytes(b"weights")
    assert demo.draft_path() == folder
