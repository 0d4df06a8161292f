"""The structured sampler: contract, learning from what trials show, failures, costs, batches."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autospec.config import PLAIN, SpecConfig
from autospec.tune.samplers import LEAST_GAIN
from autospec.tune.seen import LoadSeen, Seen
from autospec.tune.shapes import shape_of
from autospec.tune.structured import StructuredSampler
from tests.tune.contract import Factory, SamplerContract

CHAINS = [SpecConfig("EAGLE3", n, 1, n + 1, "/e") for n in range(1, 11)]
DEAR = [SpecConfig("STANDALONE", n, 1, n + 1, "/s") for n in range(1, 11)]
SPACE = [*CHAINS, *DEAR]


class TestStructured(SamplerContract):
    """The structured sampler keeps the contract."""

    @pytest.fixture
    def make(self) -> Factory:
        """The structured sampler."""
        return StructuredSampler


def show(config: SpecConfig, error: float = 0.0) -> tuple[float, Seen]:
    """A world in which EAGLE3 is best at 5 steps and STANDALONE never pays."""
    shape = shape_of(config)
    rate = 0.8 if config.algorithm == "EAGLE3" else 0.5
    rates = tuple(rate**d for d in range(1, shape.depth + 1))
    draft = 1.0 if config.algorithm == "EAGLE3" else 6.0
    step = 10 + draft * shape.passes
    speed = 1000 * (1 + sum(rates)) / step
    seen = Seen((LoadSeen(1, speed, 1.0, step),), 1 + sum(rates), rates, 4000, error)
    return math.log(speed / 100), seen


BEST = max(SPACE, key=lambda config: show(config)[0])


def told(sampler: StructuredSampler, *configs: SpecConfig) -> StructuredSampler:
    """The sampler after these trials and plain decoding's."""
    for config in (PLAIN, *configs):
        sampler.tell(config, *show(config))
    return sampler


def searched(sampler: StructuredSampler, trials: int) -> list[SpecConfig]:
    """What it asks for, until it expects nothing more."""
    asked: list[SpecConfig] = []
    for _ in range(trials):
        proposal = sampler.ask()
        if proposal is None or (proposal.gain or 0.0) < LEAST_GAIN:
            break
        asked.append(proposal.config)
        sampler.tell(proposal.config, *show(proposal.config))
    return asked


@pytest.mark.parametrize("seed", range(4))
def test_the_best_of_twenty_is_found_in_a_quarter(seed: int) -> None:
    """Acceptance and step times of a few shapes lead to the best within 2 %."""
    sampler = told(StructuredSampler(SPACE, seed))
    asked = searched(sampler, 5)
    assert max(show(config)[0] for config in asked) >= show(BEST)[0] - 0.02


def test_it_stops_expecting_gains() -> None:
    """Once the world is known, every further candidate is worth less than a trial."""
    assert len(searched(told(StructuredSampler(SPACE, 0)), len(SPACE))) <= 12


def test_both_methods_are_tried() -> None:
    """No method is written off unseen."""
    asked = searched(told(StructuredSampler(SPACE, 0)), 5)
    assert {config.algorithm for config in asked} == {"EAGLE3", "STANDALONE"}


def _asked_until_plain(sampler: StructuredSampler, slower: float = 1.0) -> list[SpecConfig]:
    """What it asks for until that is plain decoding, others being slower by a factor."""
    asked: list[SpecConfig] = []
    while (proposal := sampler.ask()) is not None:
        asked.append(proposal.config)
        if proposal.config.is_plain:
            break
        value, seen = show(proposal.config)
        loads = tuple(
            replace(
                load,
                throughput=load.throughput / slower,
                step_time_ms=(load.step_time_ms or 0.0) * slower,
            )
            for load in seen.loads
        )
        sampler.tell(proposal.config, value - math.log(slower), replace(seen, loads=loads))
    return asked


def test_plain_is_asked_for_as_soon_as_it_may_be_the_best() -> None:
    """Where speculating does not leave it far behind; else the trial is better spent elsewhere."""
    close = [SpecConfig("STANDALONE", n, 1, n + 1, "/s") for n in range(1, 11)]
    assert len(_asked_until_plain(StructuredSampler([*close, PLAIN], 0))) == 2
    far = [SpecConfig("EAGLE3", n, 1, n + 1, "/e") for n in range(7, 11)]
    asked = _asked_until_plain(StructuredSampler([*far, PLAIN], 0))
    assert len(asked) > 2
    assert asked[-1] == PLAIN


def test_plain_is_asked_for_when_nothing_else_is_worth_it() -> None:
    """Or when nothing else is left, or nothing else runs."""
    sampler = StructuredSampler([PLAIN], 0)
    proposal = sampler.ask()
    assert proposal is not None
    assert proposal.config.is_plain
    sampler = StructuredSampler([*CHAINS, PLAIN], 0)
    first = sampler.ask()
    assert first is not None
    sampler.tell(first.config, None)
    second = sampler.ask()
    assert second is not None
    assert second.config.is_plain


def test_a_batch_has_plain_in_second_place() -> None:
    """Nothing told so far says that it can be left out."""
    batch = StructuredSampler([*SPACE, PLAIN], 0).ask(4)
    assert [proposal.config.is_plain for proposal in batch] == [False, True, False, False]


def test_values_need_not_be_against_plain() -> None:
    """With plain decoding among the candidates, any log of throughputs does."""
    near, far = (StructuredSampler([*SPACE, PLAIN], 0) for _ in range(2))
    for config in (PLAIN, CHAINS[2], DEAR[2]):
        value, seen = show(config)
        near.tell(config, value, seen)
        far.tell(config, value + 7, seen)
    one, other = near.ask(), far.ask()
    assert one is not None
    assert other is not None
    assert one.config == other.config
    assert one.reason == other.reason


def test_a_reason_names_what_is_expected_and_why() -> None:
    """Gain, throughput with an interval, accept length, step time, and the best so far."""
    proposal = told(StructuredSampler(SPACE, 0), CHAINS[2], DEAR[1]).ask()
    assert proposal is not None
    assert proposal.gain is not None
    best = math.exp(show(CHAINS[2])[0])
    for words in ("gain ", "x plain (", "accept length", "step time", f"best so far {best:.2f}x"):
        assert words in proposal.reason


def test_the_first_of_a_method_says_so() -> None:
    """Nothing of it was seen, so the prior speaks."""
    proposal = told(StructuredSampler(SPACE, 0)).ask()
    assert proposal is not None
    assert proposal.reason.startswith("first of its method")


def test_a_batch_differs_and_is_what_single_asks_give() -> None:
    """``ask(n)`` gives n different candidates, or all that are left."""
    single = told(StructuredSampler(SPACE, 0), CHAINS[2])
    batch = told(StructuredSampler(SPACE, 0), CHAINS[2]).ask(3)
    assert [proposal.config for proposal in batch] == [
        proposal.config for proposal in (single.ask() for _ in range(3)) if proposal
    ]
    assert len({proposal.config for proposal in batch}) == 3
    assert len(StructuredSampler(CHAINS[:2], 0).ask(5)) == 2
    assert StructuredSampler((), 0).ask(2) == ()


def test_larger_shapes_than_one_that_crashed_are_left_for_last() -> None:
    """Out of memory at one size, the sampler asks for smaller ones first."""
    trees = [SpecConfig("EAGLE3", 4, 8, tokens, "/e") for tokens in (8, 16, 32, 64)]
    sampler = told(StructuredSampler(trees, 0))
    sampler.tell(trees[2], None)
    proposal = sampler.ask()
    assert proposal is not None
    assert proposal.config != trees[3]
    doubtful = sampler.ask(2)[-1]
    assert doubtful.config == trees[3]
    assert "runs with a chance of" in doubtful.reason


def test_what_needs_no_launch_is_preferred() -> None:
    """Of two about as promising, the one that the running server can measure goes first."""
    alone = told(StructuredSampler(SPACE, 0), CHAINS[9]).ask()
    assert alone is not None
    neighbours = [c for c in SPACE if c.algorithm == alone.config.algorithm and c != alone.config]
    near = min(neighbours, key=lambda c: abs((c.num_steps or 0) - (alone.config.num_steps or 0)))
    cheap = told(StructuredSampler(SPACE, 0, running=lambda c: c == near), CHAINS[9])
    proposal = cheap.ask()
    assert proposal is not None
    assert proposal.config == near


def test_a_known_launch_time_makes_launches_dear() -> None:
    """With launches of minutes and passes of seconds, no launch is worth far more."""
    near = CHAINS[6]
    sampler = StructuredSampler(SPACE, 0, running=lambda c: c == near)
    for config in (PLAIN, CHAINS[9]):
        value, seen = show(config)
        sampler.tell(config, value, replace(seen, launch_s=300.0, passes_s=3.0))
    proposal = sampler.ask()
    assert proposal is not None
    assert proposal.config == near


def test_the_choice_is_the_best_value_where_there_is_no_noise() -> None:
    """Exact values are taken as they are."""
    sampler = told(StructuredSampler([*SPACE, PLAIN], 0), CHAINS[1], CHAINS[7], DEAR[0])
    tried = (PLAIN, CHAINS[1], CHAINS[7], DEAR[0])
    assert sampler.best() == max(tried, key=lambda config: show(config)[0])


def test_a_lucky_value_is_drawn_towards_the_model() -> None:
    """Among values with much noise, the shape that the others speak for is chosen."""
    sampler = StructuredSampler([*SPACE, PLAIN], 0)
    for config in (PLAIN, *CHAINS[::2]):
        value, seen = show(config, error=0.2)
        sampler.tell(config, value, seen)
    value, seen = show(DEAR[4], error=0.2)
    lucky = show(BEST)[0] + 0.02
    sampler.tell(DEAR[4], lucky, seen)
    assert sampler.best() != DEAR[4]


@pytest.mark.parametrize(("error", "plain"), [(0.002, False), (0.1, True)])
def test_what_leads_plain_within_its_error_is_not_chosen(error: float, plain: bool) -> None:
    """To deploy nothing is the smaller mistake, unless the lead is beyond doubt."""
    sampler = StructuredSampler([*SPACE, PLAIN], 0)
    value, seen = show(CHAINS[0])
    sampler.tell(CHAINS[0], value, replace(seen, error=error))
    plain_speed = 0.96 * seen.loads[0].throughput
    loads = (LoadSeen(1, plain_speed, 1.0, 1000 / plain_speed),)
    sampler.tell(PLAIN, value + math.log(0.96), Seen(loads, error=error))
    chosen = sampler.best()
    assert chosen is not None
    assert chosen.is_plain is plain


def test_nothing_told_is_no_choice() -> None:
    """There is no best of nothing."""
    assert StructuredSampler(SPACE, 0).best() is None
