"""What every sampler promises. A sampler's tests subclass this with one fixture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from autospec.config import PLAIN, SpecConfig
from autospec.tune.samplers import Sampler
from tests.tune.fakes import CANDIDATES, speed

Factory = Callable[[Sequence[SpecConfig], int], Sampler]


def drain(sampler: Sampler, *, fails: bool = False) -> list[SpecConfig]:
    """Ask and tell until the sampler has nothing left."""
    asked: list[SpecConfig] = []
    while (proposal := sampler.ask()) is not None:
        asked.append(proposal.config)
        assert proposal.reason
        sampler.tell(proposal.config, None if fails else math.log(speed(proposal.config)))
        assert len(asked) <= len(CANDIDATES)
    return asked


class SamplerContract:
    """Subclass with a fixture ``make`` that gives (candidates, seed) -> sampler."""

    @pytest.fixture
    def make(self) -> Factory:
        """The sampler under test."""
        raise NotImplementedError

    def test_each_candidate_is_asked_for_once_and_then_nothing(self, make: Factory) -> None:
        """A drained sampler has named every candidate once, and goes on saying None."""
        sampler = make(CANDIDATES, 0)
        assert sorted(drain(sampler)) == sorted(CANDIDATES)
        assert sampler.ask() is None

    def test_asking_without_telling_never_repeats(self, make: Factory) -> None:
        """What is asked for is not asked for again while its result is open."""
        sampler = make(CANDIDATES, 0)
        asked = [sampler.ask() for _ in CANDIDATES]
        assert {proposal.config for proposal in asked if proposal} == set(CANDIDATES)
        assert sampler.ask() is None

    def test_a_duplicated_candidate_is_asked_for_once(self, make: Factory) -> None:
        """Candidates are a set, whatever they come in."""
        assert sorted(drain(make(CANDIDATES[:3] * 2, 0))) == sorted(CANDIDATES[:3])

    def test_all_failures_are_survived(self, make: Factory) -> None:
        """With every trial failed, each candidate is still tried once."""
        assert sorted(drain(make(CANDIDATES, 0), fails=True)) == sorted(CANDIDATES)

    def test_a_value_that_is_no_number_counts_as_a_failure(self, make: Factory) -> None:
        """NaN and infinities reach no model and stop nothing."""
        sampler = make(CANDIDATES, 0)
        values = [math.nan, math.inf, -math.inf, 0.1, 0.2]
        for config, value in zip(CANDIDATES, values, strict=False):
            sampler.tell(config, value)
        assert sorted(drain(sampler)) == sorted(CANDIDATES[len(values) :])

    def test_one_seed_gives_one_order(self, make: Factory) -> None:
        """Equal candidates, in any order, and equal seeds give equal questions."""
        assert drain(make(CANDIDATES, 3)) == drain(make(CANDIDATES[::-1], 3))

    def test_what_was_told_before_is_not_asked_for(self, make: Factory) -> None:
        """Results of an earlier session take their configurations off the list."""
        sampler = make(CANDIDATES, 0)
        sampler.tell(CANDIDATES[2], 0.1)
        sampler.tell(CANDIDATES[5], None)
        rest = set(CANDIDATES) - {CANDIDATES[2], CANDIDATES[5]}
        assert sorted(drain(sampler)) == sorted(rest)

    @pytest.mark.parametrize("num_told", [1, 3, 6, 8])
    def test_replayed_results_give_the_same_continuation(
        self, make: Factory, num_told: int
    ) -> None:
        """A fresh sampler told the first trials, in any order, asks for what would have come."""
        whole = drain(make(CANDIDATES, 1))
        resumed = make(CANDIDATES, 1)
        for config in reversed(whole[:num_told]):
            resumed.tell(config, math.log(speed(config)))
        assert drain(resumed) == whole[num_told:]

    def test_a_result_of_no_candidate_is_ignored(self, make: Factory) -> None:
        """Plain decoding, or a configuration of a wider space, changes nothing."""
        sampler = make(CANDIDATES, 0)
        sampler.tell(PLAIN, 0.0)
        sampler.tell(SpecConfig("DFLASH", draft_model="/d", options=(("block_size", 8),)), 1.0)
        assert drain(sampler) == drain(make(CANDIDATES, 0))

    def test_a_single_candidate_is_asked_for(self, make: Factory) -> None:
        """One candidate is one question."""
        assert drain(make(CANDIDATES[:1], 0)) == [CANDIDATES[0]]

    def test_no_candidates_are_no_questions(self, make: Factory) -> None:
        """An empty space is exhausted from the start."""
        assert make((), 0).ask() is None
