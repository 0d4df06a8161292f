"""``autospec compare``: two servers on the same prompts, in turns, until the verdict is clear."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from autospec.bench.fairness import check_fairness
from autospec.bench.figures import arm_result, throughputs
from autospec.bench.launches import launch_noise
from autospec.bench.lineup import Lineup, Side
from autospec.bench.plan import Plan, load_name
from autospec.bench.result import CompareResult, Made
from autospec.bench.serve import BenchListener
from autospec.bench.target import Launch, Running, Target
from autospec.errors import InputError
from autospec.measure.sequential import Look, StoppingRule
from autospec.tuning.points import interval

__all__ = ["Repeats", "run_compare"]


@dataclass(frozen=True, slots=True)
class Repeats:
    """How many passes each arm makes at each load.

    Attributes:
        least: before the comparison may end.
        most: after which it ends anyway.

    Raises:
        InputError: fewer than 3 at least, or fewer at most than at least.
    """

    least: int = 5
    most: int = 20

    def __post_init__(self) -> None:
        if self.least < 3:
            raise InputError(f"least repeats are {self.least}, must be at least 3")
        if self.most < self.least:
            raise InputError(f"most repeats are {self.most}, must be at least {self.least}")


def run_compare(
    targets: tuple[Target, Target],
    plan: Plan,
    repeats: Repeats,
    listener: BenchListener,
    command: str,
    *,
    force: bool = False,
) -> CompareResult:
    """Measure two servers in turns, in the order A B B A A B B A.

    Two servers that run already take turns pass by pass. Where one has to be launched the launches
    take turns, with several passes each, and never two at once. They come in whole rounds A B B A,
    so an odd number of passes may become one more.

    Args:
        targets: A and B.
        plan: what is sent; loads with a number of requests in flight only, since a rate of
            arrivals sets the throughput.
        repeats: bounds of the passes.
        listener: told what happens.
        command: how the user began it.
        force: compare what differs in more than it should.

    Raises:
        MismatchError: naming the first field that makes the comparison unfair.
        AutospecError: a server that cannot be measured, or a pass without a figure.
    """
    if plan.traffic.request_rates:
        raise InputError("a comparison needs loads by concurrency: a rate sets the throughput")
    created, begin_s = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    for warning in plan.parts.workload.warnings:
        listener.note(f"warning: {warning}")
    a, b = Side("A", targets[0]), Side("B", targets[1])
    _check_asked(a, b, force=force)
    pace = _Pace.of(a, b, repeats)
    total = 2 * pace.most * len(plan.loads)
    with Lineup((a, b), plan, listener, total=total, force=force) as lineup:
        look = _take_turns(lineup, pace)
    names = [load_name(load) for load in plan.loads]
    results = [
        arm_result(
            side.subject,
            side.runs,
            plan.traffic.slo,
            warnings=side.warnings,
            launch_s=side.launch_s,
        )
        for side in (a, b)
    ]
    return CompareResult(
        a=results[0],
        b=results[1],
        workload=plan.summary(),
        made=Made(command, created, plan.traffic.seed, round(time.monotonic() - begin_s, 1)),
        ratio=interval(look.ratio),
        decision=look.decision,
        reason=look.reason,
        loads={names[place]: interval(ratio) for place, ratio in look.levels.items()},
        pairs=look.ratio.n,
        order=pace.order,
        same=_same(*targets),
        unfair=lineup.fairness.unfair,
        differs=(*lineup.fairness.differs, *_tokens_differ(a, b)),
        slo=plan.traffic.slo,
    )


@dataclass(frozen=True, slots=True)
class _Pace:
    """How the turns go.

    Attributes:
        order: what alternates.
        block: passes of one turn at each load.
        looks: after how many turns of both arms the verdict is looked at.
        rule: when to stop.
    """

    order: Literal["passes", "launches"]
    block: int
    looks: int
    rule: StoppingRule

    @property
    def most(self) -> int:
        """Passes of each arm at each load, at most."""
        return self.rule.max_pairs

    @classmethod
    def of(cls, a: Side, b: Side, repeats: Repeats) -> _Pace:
        """Single passes where both servers run; whole rounds A B B A of launches otherwise."""
        if isinstance(a.target, Running) and isinstance(b.target, Running):
            return cls("passes", 1, 1, StoppingRule(repeats.least, repeats.most))
        block = (repeats.least + 1) // 2
        rounds = max(1, repeats.most // (2 * block))
        return cls("launches", block, 2, StoppingRule(2 * block, 2 * block * rounds))


def _take_turns(lineup: Lineup, pace: _Pace) -> Look:
    if pace.order == "passes":
        for side in lineup.sides:
            lineup.open(side)
    turn = 0
    while True:
        repeats = range(turn * pace.block, (turn + 1) * pace.block)
        for side in lineup.sides if turn % 2 == 0 else lineup.sides[::-1]:
            lineup.open(side)
            lineup.passes(side, repeats)
        turn += 1
        if turn % pace.looks == 0:
            look = _look(lineup, pace)
            lineup.listener.note(f"A is {interval(look.ratio)} of B: {look.reason}")
            if look.stop:
                return look


def _look(lineup: Lineup, pace: _Pace) -> Look:
    a, b = lineup.sides
    figures = {
        place: (throughputs(a.runs, load_name(load)), throughputs(b.runs, load_name(load)))
        for place, load in enumerate(lineup.plan.loads)
    }
    floor = launch_noise(figures.values(), pace.block) if pace.order == "launches" else 0.0
    return pace.rule.look_levels(figures, noise_floor=floor)


def _check_asked(a: Side, b: Side, *, force: bool) -> None:
    """Refuse two launches that will differ, before either is made."""
    if isinstance(a.target, Launch) and isinstance(b.target, Launch):
        check_fairness(a.target.subject, b.target.subject, force=force)


def _tokens_differ(a: Side, b: Side) -> tuple[str, ...]:
    """Each server renders the prompts itself; another template makes them other prompts."""
    mine, other = (
        sum(r.prompt_tokens for run in side.runs for r in run.records) for side in (a, b)
    )
    return () if mine == other else (f"tokens of the same prompts: {mine} / {other}",)


def _same(a: Target, b: Target) -> bool:
    if isinstance(a, Running) and isinstance(b, Running):
        return a.url == b.url
    if isinstance(a, Launch) and isinstance(b, Launch):
        return (a.arguments, a.variables) == (b.arguments, b.variables)
    return False
