"""The cost model on arms that it was not shown."""

from __future__ import annotations

import random

import pytest

from autospec.config import PLAIN, SpecConfig
from autospec.report.predicted import median_error, predict
from autospec.tune.seen import Seen, seen_of
from tests.report.synthetic import measured

CHAINS = [SpecConfig("STANDALONE", steps, 1, steps + 1, "small") for steps in range(1, 9)]


def arms(*configs: SpecConfig) -> list[tuple[SpecConfig, Seen]]:
    """Configurations and what they show."""
    rng = random.Random(1)  # noqa: S311 -- seeded on purpose
    return [(config, seen_of(measured(config, rng))) for config in configs]


def test_chains_of_one_method_tell_of_each_other() -> None:
    """Each is predicted once, from the others, close to what it made."""
    found = predict(arms(PLAIN, *CHAINS))
    assert sorted(row.config for row in found) == CHAINS
    assert median_error(found) < 0.1
    for row in found:
        assert row.low <= row.predicted <= row.high


def test_nothing_is_said_of_a_method_without_others() -> None:
    """One arm of its kind has nobody to learn from."""
    lone = SpecConfig("EAGLE3", 3, 1, 4, "head")
    assert lone not in {row.config for row in predict(arms(PLAIN, *CHAINS, lone))}


@pytest.mark.parametrize("configs", [(PLAIN, *CHAINS[:3]), CHAINS])
def test_too_little_predicts_nothing(configs: tuple[SpecConfig, ...]) -> None:
    """Few arms, or no plain decoding to compare with."""
    assert predict(arms(*configs)) == ()
