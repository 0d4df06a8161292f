"""The confirmation: rounds of plain, finalist, plain; each launch recorded and none lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from autospec.config import PLAIN, SpecConfig
from autospec.errors import ConfigError, LaunchError, SchemaError
from autospec.fidelity import Lossless
from autospec.measurement import Measurement, Request, Run
from autospec.tune.study import Study
from autospec.tune.trial import SilentListener
from autospec.tuning.answers import Ask
from autospec.tuning.arm import Arms
from autospec.tuning.confirm import Confirmation, ConfirmPlan, Finalist, confirm
from autospec.tuning.rounds import launches_left, was_begun

NGRAM = SpecConfig("NGRAM", num_draft_tokens=8)
REQUESTS = tuple(Request(index, (1, index), 4) for index in range(6))
PLAN = ConfirmPlan(repeats=3, concurrencies=(1,))
#: Ratios of passes by repeat: clear from the first round on, and never clear.
CLEAR = (1.30, 1.31, 1.29, 1.30, 1.32, 1.28)
UNCLEAR = (0.80, 1.30, 1.00, 1.25, 0.85, 1.10)


@dataclass
class Speaker:
    """A server whose greedy answers are the prompt's number, four times."""

    lossy: bool = False
    asked: int = 0

    async def answer(self, request: Request) -> tuple[int, ...]:
        """The answer."""
        self.asked += 1
        return (request.prompt + 100 * self.lossy,) * 4

    async def answer_text(self, request: Request) -> str:
        """The answer in words."""
        return " ".join(map(str, await self.answer(request)))

    async def next_logprobs(
        self, input_ids: Sequence[int], *, top: int
    ) -> tuple[tuple[int, float], ...]:
        """Sure of its token."""
        return ((input_ids[-1], -0.01), *((900 + at, -9.0 - at) for at in range(top - 1)))

    async def flush(self) -> None:
        """Do nothing."""


@dataclass
class FakeArms:
    """Notes what it is asked for; fails or is interrupted at the launch named.

    Attributes:
        ratios: the finalist's throughput over plain decoding's by repeat, over and over.
        lossy: whether the finalist answers otherwise than plain decoding.
        launches: configuration, first repeat and passes of each launch.
        answered: configurations whose answers were asked for, in order.
        errors: what happens at the launch of that number.
    """

    ratios: Sequence[float] = CLEAR
    lossy: bool = False
    launches: list[tuple[SpecConfig, int, int]] = field(default_factory=list)
    answered: list[SpecConfig] = field(default_factory=list)
    errors: dict[int, BaseException] = field(default_factory=dict)

    def measure(
        self,
        config: SpecConfig,
        part: str,
        *,
        first_repeat: int,
        repeats: int,
        ask: Ask | None = None,
    ) -> Measurement:
        """One run a repeat, at concurrency 1."""
        self._launch(config, first_repeat, repeats, ask)
        runs = tuple(
            Run(part, 1, repeat, 10.0 * self._ratio(config, repeat), (0.0, 1.0), 1.0, ())
            for repeat in range(first_repeat, first_repeat + repeats)
        )
        return Measurement(config, runs, launch_s=1.0, duration_s=2.0)

    def answer(self, config: SpecConfig, ask: Ask) -> Measurement:
        """A launch without a pass."""
        self._launch(config, 0, 0, ask)
        return Measurement(config, (), launch_s=1.0, duration_s=1.0)

    def _launch(self, config: SpecConfig, first_repeat: int, repeats: int, ask: Ask | None) -> None:
        self.launches.append((config, first_repeat, repeats))
        if len(self.launches) in self.errors:
            raise self.errors[len(self.launches)]
        if ask is not None:
            self.answered.append(config)
            asyncio.run(self._ask(ask, Speaker(self.lossy and not config.is_plain)))

    async def _ask(self, ask: Ask, speaker: Speaker) -> None:
        await ask(speaker, REQUESTS)

    def _ratio(self, config: SpecConfig, repeat: int) -> float:
        return 1.0 if config.is_plain else self.ratios[repeat % len(self.ratios)]


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    """An empty study."""
    with Study.create(tmp_path / "study", {}) as study:
        yield study


def run(
    study: Study,
    arms: FakeArms,
    plan: ConfirmPlan = PLAN,
    finalists: Sequence[SpecConfig] = (NGRAM,),
) -> Confirmation:
    """Confirm the n-gram configuration, or several."""
    return confirm(study, cast("Arms", arms), finalists, plan, SilentListener())


def best_of(confirmation: Confirmation) -> Finalist:
    """The finalist that the verdict is about, which must be there."""
    assert confirmation.best is not None
    return confirmation.best


def lossless_of(confirmation: Confirmation) -> Lossless:
    """Its comparison of greedy answers, which must be there."""
    found = best_of(confirmation).lossless
    assert found is not None
    return found


def test_plain_surrounds_the_finalist_and_every_repeat_has_its_pair(study: Study) -> None:
    """A B B A: repeats 0 to 5 of both arms, so that drift meets both alike."""
    arms = FakeArms()
    confirmation = run(study, arms)
    assert arms.launches == [(PLAIN, 0, 3), (NGRAM, 0, 6), (PLAIN, 3, 3)]
    assert confirmation.plain is not None
    assert [r.repeat for r in confirmation.plain.runs] == list(range(6))
    assert [r.repeat for r in best_of(confirmation).measurement.runs] == list(range(6))
    assert [trial.kind for trial in study.trials()] == ["confirm"] * 3


def test_clear_case_stops_after_one_round(study: Study) -> None:
    """What the first round shows needs no second."""
    confirmation = run(study, FakeArms(CLEAR))
    assert confirmation.rounds == 1
    assert best_of(confirmation).look.stop
    assert best_of(confirmation).look.decision == "faster"
    assert confirmation.unfinished == ""


def test_unclear_case_goes_on_to_the_cap_with_new_repeats(study: Study) -> None:
    """Each round adds repeats that no round before has, up to the rounds allowed."""
    arms = FakeArms(UNCLEAR)
    confirmation = run(study, arms)
    assert confirmation.rounds == 3
    assert len(arms.launches) == 9
    assert [r.repeat for r in best_of(confirmation).measurement.runs] == list(range(18))
    assert best_of(confirmation).look.decision == "inconclusive"
    assert best_of(confirmation).look.stop


def test_rounds_are_no_more_than_asked_for_or_than_the_rule_takes(study: Study) -> None:
    """One round asked for is one round; many repeats leave room for fewer rounds."""
    assert run(study, FakeArms(UNCLEAR), ConfirmPlan(3, (1,), rounds=1)).rounds == 1
    assert ConfirmPlan(3, (1,), rounds=9).most_rounds == 3
    assert ConfirmPlan(10, (1,)).most_rounds == 1
    assert ConfirmPlan(50, (1,)).rule().max_pairs == 100


def test_noise_between_launches_makes_a_small_win_unclear(study: Study) -> None:
    """A verdict is never finer than what two launches of one configuration differ by."""
    small = tuple(1 + (ratio - 1) / 6 for ratio in CLEAR)
    quiet = run(study, FakeArms(small), ConfirmPlan(3, (1,), rounds=1))
    noisy = run(study, FakeArms(small), ConfirmPlan(3, (1,), rounds=1, noise_floor=0.05))
    decisions = [best_of(found).look.decision for found in (quiet, noisy)]
    assert decisions == ["faster", "inconclusive"]


def test_budget_holds_further_rounds_back_but_not_the_first(study: Study) -> None:
    """A round is not begun when the seconds left do not hold it; the reason says both numbers."""
    study.fail(study.start(NGRAM, "tune", ""), "", "", 100.0)
    confirmation = run(study, FakeArms(UNCLEAR), ConfirmPlan(3, (1,), budget_s=103))
    assert confirmation.rounds == 1
    assert "needs 6s, the budget has 3s left" in confirmation.unfinished
    more = run(study, FakeArms(UNCLEAR), ConfirmPlan(3, (1,), budget_s=200))
    assert more.rounds == 3


@pytest.mark.parametrize("ratios", [CLEAR, UNCLEAR])
@pytest.mark.parametrize("stopped_at", [1, 2, 3, 5, 9])
def test_interrupted_confirmation_goes_on_where_it_was(
    study: Study, stopped_at: int, ratios: Sequence[float]
) -> None:
    """Finished launches are kept and only the rest is measured; the result is the same."""
    arms = FakeArms(ratios, errors={stopped_at: KeyboardInterrupt()})
    try:
        whole: Confirmation | None = run(study, arms)
    except KeyboardInterrupt:
        whole = None
    first = [launch for launch in arms.launches[: stopped_at - 1] if launch[2]]
    again = FakeArms(ratios)
    confirmation = run(study, again)
    passes = [launch for launch in again.launches if launch[2]]
    assert confirmation.rounds == (1 if ratios is CLEAR else 3)
    assert len(passes) == (0 if whole else 3 * confirmation.rounds - len(first))
    assert confirmation == run(study, FakeArms(ratios))
    assert lossless_of(confirmation).decision == "identical"


def test_round_that_was_begun_is_finished_whatever_the_budget(study: Study) -> None:
    """Its launches were paid for already."""
    plan = ConfirmPlan(3, (1,), budget_s=1e6)
    with pytest.raises(KeyboardInterrupt):
        run(study, FakeArms(UNCLEAR, errors={5: KeyboardInterrupt()}), plan)
    confirmation = run(study, FakeArms(UNCLEAR), ConfirmPlan(3, (1,), budget_s=0.001))
    assert confirmation.rounds == 2


def test_answers_are_compared_in_the_first_round_only(study: Study) -> None:
    """Plain, finalist, plain are asked once each, after their passes."""
    arms = FakeArms(UNCLEAR)
    confirmation = run(study, arms)
    assert arms.answered == [PLAIN, NGRAM, PLAIN]
    assert lossless_of(confirmation).decision == "identical"
    assert lossless_of(confirmation).candidate.prompts == len(REQUESTS)


def test_other_answers_are_found(study: Study) -> None:
    """A finalist that answers otherwise differs; plain decoding does not from itself."""
    confirmation = run(study, FakeArms(lossy=True))
    assert lossless_of(confirmation).decision == "differs"
    assert lossless_of(confirmation).candidate.wide == len(REQUESTS)
    assert lossless_of(confirmation).control.identical == len(REQUESTS)


@pytest.mark.parametrize("stopped_at", [2, 3])
def test_answers_lost_with_a_session_are_asked_for_again(study: Study, stopped_at: int) -> None:
    """The launches that were measured are repeated for their answers alone, as trials of a kind."""
    with pytest.raises(KeyboardInterrupt):
        run(study, FakeArms(errors={stopped_at: KeyboardInterrupt()}))
    arms = FakeArms(lossy=True)
    confirmation = run(study, arms)
    assert arms.answered == [PLAIN, NGRAM, PLAIN]
    assert [passes for _, _, passes in arms.launches].count(0) == stopped_at - 1
    kinds = [trial.kind for trial in study.trials() if trial.state == "complete"]
    assert kinds.count("check") == stopped_at - 1
    assert kinds.count("confirm") == 3
    assert lossless_of(confirmation).decision == "differs"


def test_finished_confirmation_launches_nothing_more(study: Study) -> None:
    """Its passes and the result of its check are kept; no answer is."""
    before = run(study, FakeArms(lossy=True))
    arms = FakeArms()
    assert run(study, arms) == before
    assert arms.launches == []
    kept = (study.folder / "lossless.yaml").read_text()
    assert "differs" in kept
    assert "104" not in kept


def test_damaged_result_of_the_check_is_refused_by_name(study: Study) -> None:
    """A hand-edited file is an error that names it."""
    run(study, FakeArms())
    path = study.folder / "lossless.yaml"
    path.write_text(path.read_text().replace("identical: 6", "identical: many"))
    with pytest.raises(SchemaError, match=r"lossless\.yaml"):
        run(study, FakeArms())


@pytest.mark.parametrize("failed_at", [2, 4])
def test_launch_that_fails_is_recorded_and_said(study: Study, failed_at: int) -> None:
    """In the first round there is no confirmation; later, the rounds before it stand."""
    arms = FakeArms(UNCLEAR, errors={failed_at: LaunchError("it crashed", log_tail="the log")})
    confirmation = run(study, arms)
    assert (confirmation.best is None) == (failed_at == 2)
    assert "it crashed" in (confirmation.failure or confirmation.unfinished)
    assert study.trials()[-1].log_tail == "the log"


def test_another_finalist_is_confirmed_anew(study: Study) -> None:
    """A resumed search may find a better one; neither launches nor answers are its own."""
    run(study, FakeArms(lossy=True))
    other = SpecConfig("NGRAM", num_draft_tokens=4)
    arms = FakeArms()
    confirmation = run(study, arms, finalists=(other,))
    assert [config for config, _, _ in arms.launches] == [PLAIN, other, PLAIN]
    assert lossless_of(confirmation).decision == "identical"


OTHER = SpecConfig("NGRAM", num_draft_tokens=4)


@dataclass
class TwoArms(FakeArms):
    """Ratios of its own for the second finalist, which may answer otherwise too.

    Attributes:
        others: the second finalist's throughput over plain decoding's by repeat.
        lossy_other: whether it answers otherwise than plain decoding.
        broken: finalists that do not start.
    """

    others: Sequence[float] = CLEAR
    lossy_other: bool = False
    broken: tuple[SpecConfig, ...] = ()

    def _launch(self, config: SpecConfig, first_repeat: int, repeats: int, ask: Ask | None) -> None:
        if config in self.broken:
            raise LaunchError("it crashed")
        self.lossy = self.lossy_other and config == OTHER
        super()._launch(config, first_repeat, repeats, ask)

    def _ratio(self, config: SpecConfig, repeat: int) -> float:
        ratios = self.others if config == OTHER else self.ratios
        return 1.0 if config.is_plain else ratios[repeat % len(ratios)]


def both(study: Study, arms: FakeArms, **plan: Any) -> Confirmation:
    """Confirm two finalists, of which the search ranked ``NGRAM`` first."""
    return run(study, arms, ConfirmPlan(3, (1,), **plan), finalists=(NGRAM, OTHER))


def test_all_finalists_of_a_round_share_its_launches_of_plain(study: Study) -> None:
    """Two finalists need four launches, and held-out prompts say which of them is the best."""
    arms = TwoArms(CLEAR, others=[2 * ratio for ratio in CLEAR])
    confirmation = both(study, arms)
    assert arms.launches == [(PLAIN, 0, 3), (NGRAM, 0, 6), (OTHER, 0, 6), (PLAIN, 3, 3)]
    assert [finalist.config for finalist in confirmation.finalists] == [OTHER, NGRAM]
    assert best_of(confirmation).look.decision == "faster"
    assert {f.lossless.decision for f in confirmation.finalists if f.lossless} == {"identical"}


def test_several_finalists_share_the_chance_of_a_false_verdict(study: Study) -> None:
    """The same passes give a wider interval where the better of two was chosen by them."""
    alone = best_of(run(study, FakeArms(UNCLEAR), ConfirmPlan(3, (1,), rounds=1)))
    of_two = best_of(both(study, TwoArms(UNCLEAR, others=[0.5] * 6), rounds=1))
    assert of_two.config == alone.config == NGRAM
    assert of_two.look.ratio.value == pytest.approx(alone.look.ratio.value)
    assert of_two.look.ratio.low < alone.look.ratio.low
    assert of_two.look.ratio.high > alone.look.ratio.high


def test_finalist_that_is_clearly_behind_takes_no_further_part(study: Study) -> None:
    """While the leader's verdict is unclear, only it goes on."""
    arms = TwoArms(UNCLEAR, others=[0.3] * 6)
    confirmation = both(study, arms)
    assert confirmation.rounds == 3
    assert [config for config, _, _ in arms.launches].count(OTHER) == 1
    assert best_of(confirmation).config == NGRAM


def test_order_of_the_finalists_turns_from_round_to_round(study: Study) -> None:
    """So that a machine that drifts favours none of them."""
    arms = TwoArms(UNCLEAR, others=UNCLEAR[::-1])
    both(study, arms, rounds=2)
    order = [config for config, _, _ in arms.launches]
    assert order == [PLAIN, NGRAM, OTHER, PLAIN, PLAIN, OTHER, NGRAM, PLAIN]


def test_faster_finalist_whose_answers_differ_comes_last(study: Study) -> None:
    """It may not be deployed, so the verdict is about the other; unless it is allowed."""
    arms = TwoArms(CLEAR, others=[2 * ratio for ratio in CLEAR], lossy_other=True)
    confirmation = both(study, arms)
    assert best_of(confirmation).config == NGRAM
    assert confirmation.finalists[1].lossless is not None
    assert confirmation.finalists[1].lossless.decision == "differs"
    assert best_of(both(study, TwoArms(), allow_lossy=True)).config == OTHER


def test_finalist_that_does_not_start_leaves_the_others(study: Study) -> None:
    """It is named; only when none is left is there no confirmation."""
    confirmation = both(study, TwoArms(broken=(NGRAM,)))
    assert best_of(confirmation).config == OTHER
    assert confirmation.lost == (f"{NGRAM.label} could not be confirmed: it crashed",)
    none = run(study, TwoArms(broken=(NGRAM,)), finalists=(NGRAM,))
    assert none.best is None
    assert "it crashed" in none.failure


@pytest.mark.parametrize("stopped_at", [1, 2, 3, 4, 6])
def test_interrupted_confirmation_of_two_goes_on_where_it_was(
    study: Study, stopped_at: int
) -> None:
    """No finished launch is made again."""
    arms = TwoArms(UNCLEAR, others=UNCLEAR[::-1], errors={stopped_at: KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        both(study, arms, rounds=2)
    again = TwoArms(UNCLEAR, others=UNCLEAR[::-1])
    confirmation = both(study, again, rounds=2)
    assert len([launch for launch in again.launches if launch[2]]) == 8 - (stopped_at - 1)
    assert confirmation == both(study, TwoArms(UNCLEAR, others=UNCLEAR[::-1]), rounds=2)


def test_what_an_earlier_session_made_is_known_from_the_study(study: Study) -> None:
    """For which finalists, and how many launches the last round lacks."""
    assert launches_left(study) is None
    assert not was_begun(study, (NGRAM, OTHER))
    with pytest.raises(KeyboardInterrupt):
        both(study, TwoArms(errors={3: KeyboardInterrupt()}))
    assert launches_left(study) == 2
    assert was_begun(study, (NGRAM, OTHER))
    assert not was_begun(study, (NGRAM,))
    both(study, TwoArms())
    assert launches_left(study) == 0


def test_no_finalist_is_refused(study: Study) -> None:
    """There is nothing to confirm."""
    with pytest.raises(ConfigError, match="no finalist to confirm"):
        run(study, FakeArms(), finalists=())
