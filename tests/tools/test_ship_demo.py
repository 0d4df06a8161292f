"""A study of the demo, as it comes into the repository; and what has come into it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from autospec import demo
from autospec.config import SpecConfig
from autospec.control.choose import policy_for
from autospec.errors import MismatchError
from autospec.profile import STUDY_PROFILE, ArgValue, load_profile, save_profile
from autospec.report.content import gather
from autospec.report.markdown import markdown_page
from autospec.report.tables import rate
from autospec.shipped import profile_names, profile_path
from autospec.tuning.places import DEMO_DRAFT, DEMO_TARGET, make_portable
from tests.cli.conftest import write_model
from tests.report.synthetic import write_study
from tools.ship_demo import PICTURE, PROFILE, REPORT, ROOT, ship


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study whose profile names two models of this machine, which are the demo's."""
    target, draft = write_model(tmp_path / "model"), write_model(tmp_path / "draft")
    monkeypatch.setattr(demo, "model_path", lambda *_: target)
    monkeypatch.setattr(demo, "draft_path", lambda: draft)
    study = tmp_path / "study"
    write_study(study, 4)
    profile = load_profile(study / STUDY_PROFILE).with_model(str(target))
    config = SpecConfig(
        "STANDALONE", num_steps=2, topk=1, num_draft_tokens=3, draft_model=str(draft)
    )
    arguments: dict[str, ArgValue] = {
        "model_path": str(target),
        "speculative_algorithm": "STANDALONE",
    }
    # The other rows name the synthetic study's own places, which are nowhere.
    save_profile(
        study / STUDY_PROFILE,
        replace(
            profile,
            verdict=replace(profile.verdict, best=config, reason=f"{config} is"),
            choice=replace(profile.choice, config=config, server_args=arguments),
            points=tuple(replace(point, config=config) for point in profile.points[:3]),
            step_times=(),
            acceptance=(),
            failed=(),
        ),
    )
    return study


def test_what_is_written_names_no_folder_of_this_machine(study: Path, tmp_path: Path) -> None:
    """The profile and its policy load, the report tells of it, the picture stands by itself."""
    (study / "profile.policy.yaml").write_text("schema: 1\nkind: fixed\n")
    ship(study, tmp_path / "root")
    profile = load_profile(tmp_path / "root" / PROFILE)
    assert (profile.target.model, profile.choice.config.draft_model) == (DEMO_TARGET, DEMO_DRAFT)
    assert policy_for(tmp_path / "root" / PROFILE).policy.kind == "fixed"
    report = (tmp_path / "root" / REPORT).read_text()
    assert f"autospec serve {PROFILE}" in report
    picture = (tmp_path / "root" / PICTURE).read_text()
    assert picture.startswith("<svg")
    assert set(re.findall(r"var\((--[\w-]+)\)", picture)) <= set(
        re.findall(r"(--[\w-]+):", picture)
    )
    for path in (PROFILE, REPORT, PICTURE):
        assert str(tmp_path) not in (tmp_path / "root" / path).read_text(), path


def test_a_study_of_another_model_is_refused(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not the demo's model must not be called so."""
    other = write_model(tmp_path / "other")
    monkeypatch.setattr(demo, "draft_path", lambda: other)
    with pytest.raises(MismatchError, match="is not demo:draft"):
        ship(study, tmp_path / "root")


def test_the_shipped_profile_is_of_the_demo_and_of_any_machine() -> None:
    """It is found by name, names nothing of the machine it was measured on, and rests on passes."""
    assert "demo-cpu" in profile_names()
    path = profile_path("demo-cpu")
    assert path == ROOT / PROFILE
    profile = load_profile(path)
    assert make_portable(profile, {}) == profile
    assert profile.target.model == DEMO_TARGET
    assert profile.provenance.command == "autospec tune --demo"
    assert profile.verdict.part == "confirm"
    policy_for(path)


def test_the_shipped_report_has_the_shipped_profiles_figures() -> None:
    """Every measured row of the profile stands in it, word for word."""
    report = (ROOT / REPORT).read_text(encoding="utf-8")
    rows = [
        line
        for line in markdown_page(gather(ROOT / PROFILE)).splitlines()
        if "| held out |" in line or "| search |" in line
    ]
    assert len(rows) > 4
    assert [row for row in rows if row not in report] == []


def test_the_readmes_figures_are_the_shipped_profiles() -> None:
    """Each row of its table: tokens/s and the ratio with its interval, at each load."""
    profile = load_profile(ROOT / PROFILE)
    rows = [row for row in (*profile.baseline, *profile.points) if row.part == "confirm"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for config in dict.fromkeys(row.config for row in rows):
        own = sorted((row for row in rows if row.config == config), key=lambda row: row.concurrency)
        cells = [
            cell
            for row in own
            for cell in (rate(row.output_throughput.value), str(row.vs_plain or ""))
        ]
        name = "plain decoding" if config.is_plain else f"`{config.label}`"
        assert (
            f"| {' | '.join([name, *cells])} |".replace("|  |", "| |").replace("|  |", "| |")
            in text
        )
    environment = profile.environment
    for told in (environment.accelerator, environment.sglang, profile.provenance.created[:10]):
        assert told in text
