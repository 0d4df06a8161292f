"""Which candidates are worth held-out prompts."""

from __future__ import annotations

import pytest

from autospec.config import PLAIN, SpecConfig
from autospec.measurement import Measurement
from autospec.tune.search import Ranked, SearchOutcome
from autospec.tuning.finalists import choose_finalists
from tests.tune.fakes import measured

PLAINS = measured(PLAIN, {1: [10, 10, 10], 4: [40, 40, 40]})


def config(tokens: int) -> SpecConfig:
    """An n-gram configuration."""
    return SpecConfig("NGRAM", num_draft_tokens=tokens)


def found(*speeds: float) -> SearchOutcome:
    """A search whose candidates were so fast, the best first, each pass a little different."""
    arms: list[Measurement] = [
        measured(
            config(place + 2),
            {level: [rate * speed * f for f in (1.0, 1.02, 0.98)] for level, rate in loads},
        )
        for place, speed in enumerate(speeds)
        for loads in [((1, 10), (4, 40))]
    ]
    ranked = tuple(
        Ranked(arm.config, 0.0, place, arms.__getitem__) for place, arm in enumerate(arms)
    )
    return SearchOutcome(PLAINS, ranked, "done")


def test_clear_winner_goes_alone() -> None:
    """A launch for one that the search told from the best would be wasted."""
    assert choose_finalists(found(1.5, 1.2, 1.1), 3) == (config(2),)


def test_what_looks_as_good_goes_along_up_to_the_most_allowed() -> None:
    """Best first, and no further down the ranking than that."""
    outcome = found(1.5, 1.5, 1.5, 1.5)
    assert choose_finalists(outcome, 2) == (config(2), config(3))
    assert choose_finalists(outcome, 3) == (config(2), config(3), config(4))
    assert choose_finalists(outcome, 1) == (config(2),)


@pytest.mark.parametrize(("floor", "finalists"), [(0.0, 1), (0.3, 2)])
def test_noise_between_launches_makes_more_look_as_good(floor: float, finalists: int) -> None:
    """Where launches differ by as much, the search did not tell them apart."""
    assert len(choose_finalists(found(1.5, 1.2), 2, noise_floor=floor)) == finalists
