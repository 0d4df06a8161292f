"""The Gaussian-process sampler: contract, start, learning and failures."""

from __future__ import annotations

import math

import pytest

from autospec.config import SpecConfig
from autospec.tune.gp import GPSampler
from autospec.tune.samplers import Sampler, random
from autospec.tune.space import SearchSpace, enumerate_space
from tests.tune.contract import Factory, SamplerContract
from tests.tune.fakes import CANDIDATES, speed, tree_bound

WIDE = enumerate_space(
    SearchSpace(drafts=(("STANDALONE", "/a"), ("EAGLE3", "/b"))), tree_bound
).candidates


class TestGP(SamplerContract):
    """The Gaussian process keeps the contract."""

    @pytest.fixture
    def make(self) -> Factory:
        """The Gaussian process."""
        return GPSampler


def narrow(config: SpecConfig) -> float:
    """Throughput over plain's with one best configuration: a chain of 5 steps of EAGLE3."""
    if config.algorithm != "EAGLE3":
        return 1.0 + 0.01 * math.log2(config.num_draft_tokens or 1)
    off = abs((config.num_steps or 0) - 5) + 2 * math.log2(config.topk or 1)
    return 0.8 + 1.2 * math.exp(-0.15 * off)


OPTIMUM = SpecConfig.parse("EAGLE3 steps=5 topk=1 tokens=6 draft=/b")


def num_trials_to(
    sampler: Sampler, goal: SpecConfig, failing: frozenset[SpecConfig] = frozenset()
) -> int:
    """How many trials it takes until the goal is asked for."""
    for number in range(1, len(WIDE) + 1):
        proposal = sampler.ask()
        assert proposal is not None
        if proposal.config == goal:
            return number
        fails = proposal.config in failing
        sampler.tell(proposal.config, None if fails else math.log(narrow(proposal.config)))
    raise AssertionError


def test_the_first_trials_are_one_of_each_method() -> None:
    """Every method is seen before any shape is refined."""
    sampler = GPSampler(WIDE, 0)
    first = [sampler.ask() for _ in range(3)]
    assert {p.config.algorithm for p in first if p} == {"NGRAM", "STANDALONE", "EAGLE3"}
    assert {p.reason for p in first if p} == {"a typical shape of its method"}


def test_a_typical_shape_is_no_extreme_one() -> None:
    """The first trial of a method is neither its smallest nor its largest tree."""
    sampler = GPSampler([c for c in WIDE if c.algorithm == "EAGLE3"], 0)
    proposal = sampler.ask()
    assert proposal is not None
    assert 2 < (proposal.config.num_draft_tokens or 0) < 64


def test_two_draft_models_of_one_algorithm_are_two_methods() -> None:
    """Each draft model is tried before either is refined."""
    space = SearchSpace(("STANDALONE",), (("STANDALONE", "/a"), ("STANDALONE", "/b")))
    sampler = GPSampler(enumerate_space(space, tree_bound).candidates, 0)
    first = [sampler.ask() for _ in range(2)]
    assert {p.config.draft_model for p in first if p} == {"/a", "/b"}


def test_the_model_finds_the_optimum_in_an_eighth_of_the_space() -> None:
    """The single best configuration is asked for early, whatever the seed; at random it is not."""
    num_trials = [num_trials_to(GPSampler(WIDE, seed), OPTIMUM) for seed in range(3)]
    drawn = [num_trials_to(random(WIDE, seed), OPTIMUM) for seed in range(30)]
    assert max(num_trials) <= len(WIDE) / 8
    assert sum(drawn) / len(drawn) > len(WIDE) / 4


def test_failures_do_not_hide_the_optimum() -> None:
    """Where a third of the space crashes, its neighbours too, the best of the rest is found."""
    failing = frozenset(c for c in WIDE if (c.num_draft_tokens or 0) >= 16)
    assert len(failing) > len(WIDE) / 3
    assert num_trials_to(GPSampler(WIDE, 0), OPTIMUM, failing) <= len(WIDE) / 5


def test_the_model_keeps_away_from_what_failed() -> None:
    """Once a method has failed again and again beside a good one, the model asks for the good."""
    sampler = GPSampler(WIDE, 0)
    for algorithm, value in (("STANDALONE", None), ("EAGLE3", 0.4), ("NGRAM", 0.3)):
        shapes = [config for config in WIDE if config.algorithm == algorithm]
        for config in shapes[::8]:
            sampler.tell(config, value)
    asked = []
    for _ in range(6):
        proposal = sampler.ask()
        assert proposal is not None
        if not proposal.reason.startswith("a typical"):
            asked.append(proposal.config.algorithm)
            sampler.tell(proposal.config, 0.35)
    assert asked
    assert "STANDALONE" not in asked


def test_a_choice_of_the_model_says_what_it_expects() -> None:
    """The reason names the gain, the prediction and the best so far."""
    sampler = GPSampler(CANDIDATES, 0)
    told = CANDIDATES[::2]
    for config in told:
        sampler.tell(config, math.log(speed(config)))
    proposal = sampler.ask()
    assert proposal is not None
    assert proposal.reason.startswith("expected improvement ")
    assert f"best so far {max(map(speed, told)):.2f}x" in proposal.reason


def test_equal_values_are_no_trouble() -> None:
    """A flat world, in which the model has nothing to learn, is drained like any other."""
    sampler = GPSampler(CANDIDATES, 0)
    asked = 0
    while (proposal := sampler.ask()) is not None:
        sampler.tell(proposal.config, 0.25)
        asked += 1
    assert asked == len(CANDIDATES)
