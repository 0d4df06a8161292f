"""The machine's noise: a second launch of plain decoding, once a study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from autospec.config import PLAIN, SpecConfig
from autospec.errors import LaunchError
from autospec.measurement import Measurement
from autospec.tune.study import Study
from autospec.tune.trial import SilentListener
from autospec.tuning.arm import Arms
from autospec.tuning.noise import compare_launches, known_noise, launch_again
from tests.tune.fakes import measured

FIRST = measured(PLAIN, {1: (10, 10.2, 9.9), 8: (50, 51, 49)})
SECOND = measured(PLAIN, {1: (10.1, 10.3, 10.0), 8: (52, 53, 51)})


class OneArm:
    """Gives one measurement, or the error put down for it."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.launches: list[SpecConfig] = []

    def measure(self, config: SpecConfig) -> Measurement:
        """The second launch."""
        self.launches.append(config)
        if self.error:
            raise self.error
        return SECOND


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    """An empty study."""
    with Study.create(tmp_path / "study", {}) as study:
        yield study


def launch(study: Study, error: BaseException | None = None) -> int:
    """Make the second launch; gives how many servers were started for it."""
    arms = OneArm(error)
    launch_again(study, cast("Arms", arms), SilentListener())
    return len(arms.launches)


def test_second_launch_is_made_once_and_recorded(study: Study) -> None:
    """A trial of a kind of its own, which no later session repeats."""
    assert known_noise(study, FIRST) is None
    assert launch(study) == 1
    assert launch(study) == 0
    assert [(trial.kind, trial.config) for trial in study.trials()] == [("noise", PLAIN)]
    assert known_noise(study, FIRST) == compare_launches(FIRST, SECOND)


def test_interrupted_launch_is_made_again(study: Study) -> None:
    """It was put back, so the next session makes it."""
    with pytest.raises(KeyboardInterrupt):
        launch(study, KeyboardInterrupt())
    assert launch(study) == 1
    assert known_noise(study, FIRST) is not None


def test_launch_that_fails_leaves_the_noise_unknown(study: Study) -> None:
    """The study goes on without it, and does not try again."""
    assert launch(study, LaunchError("it crashed", log_tail="")) == 1
    assert launch(study) == 0
    assert known_noise(study, FIRST) is None
    assert study.trials()[0].state == "failed"


def test_ratio_and_spread_are_given_over_all_loads_and_at_each() -> None:
    """Second launch over first; the floor is at least the difference seen."""
    noise = compare_launches(FIRST, SECOND)
    assert [load.concurrency for load in noise.loads] == [1, 8]
    assert noise.loads[0].ratio.value == pytest.approx(1.01, abs=0.001)
    assert noise.loads[1].ratio.value == pytest.approx(1.04, abs=0.001)
    assert noise.ratio.value == pytest.approx(1.025, abs=0.001)
    assert noise.floor >= 0.0245
    assert 0.01 < noise.loads[1].spread < 0.03
    assert "differed by +2.5%" in str(noise)
