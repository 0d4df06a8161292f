"""Profiles of the demo that name no folder of one machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from autospec import demo
from autospec.config import SpecConfig
from autospec.errors import DemoError, SchemaError
from autospec.evidence import Acceptance, Failure, Point
from autospec.profile import ArgValue, Choice, Profile
from autospec.tuning.places import DEMO_DRAFT, DEMO_TARGET, make_portable, put_in_place
from tests.test_profile import RATIO, make_profile


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The demo's two models on this machine; the draft's folder begins like the target's."""
    target, draft = tmp_path / "model", tmp_path / "model-draft with space"
    monkeypatch.setattr(demo, "model_path", lambda *_: target)
    monkeypatch.setattr(demo, "draft_path", lambda: draft)
    return str(target), str(draft)


def measured(target: str, draft: str) -> Profile:
    """A profile of the demo as ``tune`` writes it, with folders wherever one may stand."""
    config = SpecConfig("STANDALONE", num_steps=2, topk=1, num_draft_tokens=3, draft_model=draft)
    base = make_profile()
    point = base.points[0]
    arguments: dict[str, ArgValue] = {
        "model_path": target,
        "speculative_algorithm": "STANDALONE",
        "speculative_draft_model_path": draft,
    }
    return dataclasses.replace(
        base.with_model(target),
        verdict=dataclasses.replace(base.verdict, best=config, reason=f"{config} is"),
        choice=Choice(config, arguments, {"tokenizer_path": target}),
        points=(Point(config, "confirm", 1, point.output_throughput, 6, RATIO, 1.9),),
        acceptance=(Acceptance(config, 1.9, (0.5,)),),
        failed=(Failure(config, f"no weights in {draft}"),),
        warnings=(f"{target}: slow",),
        provenance=dataclasses.replace(base.provenance, command=f"autospec tune {target}"),
    )


def test_names_stand_for_folders_and_come_back_as_folders(here: tuple[str, str]) -> None:
    """There and back again is the same profile, and between the two no folder is left."""
    profile = measured(*here)
    portable = make_portable(profile, {here[0]: DEMO_TARGET, here[1]: DEMO_DRAFT})
    assert portable.target.model == DEMO_TARGET
    assert portable.choice.config.draft_model == DEMO_DRAFT
    assert here[0] not in str(portable)
    assert put_in_place(portable) == profile


def test_a_path_that_is_left_is_refused_by_name(here: tuple[str, str]) -> None:
    """A folder that has no name is nobody else's."""
    with pytest.raises(SchemaError, match="holds the path") as caught:
        make_portable(measured(*here), {here[0]: DEMO_TARGET})
    assert here[1].split()[0] in str(caught.value)


def test_other_profiles_come_back_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is fetched for a profile of another model."""
    monkeypatch.setattr(demo, "model_path", lambda *_: pytest.fail("the demo is not asked for"))
    profile = make_profile()
    assert put_in_place(profile) is profile


def test_without_the_drafter_it_is_said_where_it_is(
    here: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed package does not bring it."""
    portable = make_portable(measured(*here), {here[0]: DEMO_TARGET, here[1]: DEMO_DRAFT})
    monkeypatch.setattr(demo, "draft_path", lambda: None)
    with pytest.raises(DemoError, match=r"examples/demo-draft .* start it from a clone"):
        put_in_place(portable)
