"""The confirmation: plain, finalist, plain, each launch recorded and none lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from autospec.config import PLAIN, SpecConfig
from autospec.errors import LaunchError
from autospec.measurement import Measurement, Run
from autospec.tune.study import Study
from autospec.tune.trial import SilentListener
from autospec.tuning.arm import Arms
from autospec.tuning.confirm import confirm

NGRAM = SpecConfig("NGRAM", num_draft_tokens=8)


@dataclass
class FakeArms:
    """Notes what it is asked for; fails or is interrupted at the launch named."""

    launches: list[tuple[SpecConfig, int, int]] = field(default_factory=list)
    errors: dict[int, BaseException] = field(default_factory=dict)

    def measure(
        self, config: SpecConfig, part: str, *, first_repeat: int, repeats: int
    ) -> Measurement:
        """One run a repeat, at concurrency 1."""
        self.launches.append((config, first_repeat, repeats))
        if len(self.launches) in self.errors:
            raise self.errors[len(self.launches)]
        runs = tuple(
            Run(part, 1, repeat, 10.0, (0.0, 1.0), 1.0, ())
            for repeat in range(first_repeat, first_repeat + repeats)
        )
        return Measurement(config, runs, launch_s=1.0, duration_s=2.0)


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    """An empty study."""
    with Study.create(tmp_path / "study", {}) as study:
        yield study


def run(study: Study, arms: FakeArms) -> object:
    """Confirm the n-gram configuration with three repeats."""
    return confirm(study, cast("Arms", arms), NGRAM, 3, SilentListener())


def test_plain_surrounds_the_finalist_and_every_repeat_has_its_pair(study: Study) -> None:
    """A B B A: repeats 0 to 5 of both arms, so that drift meets both alike."""
    arms = FakeArms()
    confirmation = confirm(study, cast("Arms", arms), NGRAM, 3, SilentListener())
    assert arms.launches == [(PLAIN, 0, 3), (NGRAM, 0, 6), (PLAIN, 3, 3)]
    assert confirmation.plain is not None
    assert confirmation.finalist is not None
    assert [r.repeat for r in confirmation.plain.runs] == list(range(6))
    assert [r.repeat for r in confirmation.finalist.runs] == list(range(6))
    assert [trial.kind for trial in study.trials()] == ["confirm"] * 3


@pytest.mark.parametrize("stopped_at", [1, 2, 3])
def test_interrupted_confirmation_goes_on_where_it_was(study: Study, stopped_at: int) -> None:
    """Finished launches are kept; only the rest is measured."""
    with pytest.raises(KeyboardInterrupt):
        run(study, FakeArms(errors={stopped_at: KeyboardInterrupt()}))
    arms = FakeArms()
    assert run(study, arms) == run(study, FakeArms())
    assert len(arms.launches) == 4 - stopped_at


def test_launch_that_fails_is_recorded_and_said(study: Study) -> None:
    """The study is not lost; the confirmation says what went wrong."""
    arms = FakeArms(errors={2: LaunchError("it crashed", log_tail="the log")})
    confirmation = confirm(study, cast("Arms", arms), NGRAM, 3, SilentListener())
    assert confirmation.finalist is None
    assert "it crashed" in confirmation.failure
    assert study.trials()[-1].log_tail == "the log"


def test_another_finalist_is_confirmed_anew(study: Study) -> None:
    """A resumed search may find a better one; the old confirmation is not its own."""
    run(study, FakeArms())
    other = SpecConfig("NGRAM", num_draft_tokens=4)
    arms = FakeArms()
    confirm(study, cast("Arms", arms), other, 3, SilentListener())
    assert [config for config, _, _ in arms.launches] == [PLAIN, other, PLAIN]
