"""Replay of a trace under a policy: what it would have made. Simulated, from measured step times.

At each step the policy picks a depth ``k`` up to the trace's. The step yields
``sum(min(correct_i, k) + 1)`` tokens and takes the time that the table of step times gives; then
the policy is shown what a server would show, correct drafts up to ``k``, and nothing at depth 0.

Ratios weigh each step by the time that the policy spent on it: with ``rate_k(i)`` the tokens per
ms that depth ``k`` makes over the 101 steps centred on step ``i`` (for plain decoding exactly batch
size over step time), ``vs_k = tokens / sum(step_time_i * rate_k(i))``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autospec.control.controller import Controller
from autospec.control.costs import Costs
from autospec.control.policy import Observation, Setting
from autospec.control.trace import Trace
from autospec.errors import SchemaError

__all__ = ["WINDOW", "Ground", "Part", "Result", "replay", "setting_for"]

#: Steps over which a depth's rate is taken.
WINDOW = 101

Array = NDArray[np.float64]
#: Candidates by step, as indices.
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Part:
    """Figures of a stretch of the trace.

    Attributes:
        first_step: where it begins.
        steps: its length.
        tokens: tokens made.
        duration_ms: time taken, by the table of step times.
        throughput: tokens/s.
        vs_plain: ratio to plain decoding.
        vs_best_fixed: ratio to the single depth that is hardest to beat.
        best_fixed_depth: that depth.
        vs_oracle: ratio to the best depth at each step.
        switches: changes of the settled depth; steps run to learn from are none.
        probe_share: share of throughput given up to steps run to learn from: the time they took
            beyond what their tokens would have taken at the settled depth, over all time.
        probe_steps: how many such steps there were.
        fallbacks: steps at which the policy went from speculation to plain decoding.
        recoveries: steps at which it went back.
        phase: the name that the trace gives it.
    """

    first_step: int
    steps: int
    tokens: int
    duration_ms: float
    throughput: float
    vs_plain: float
    vs_best_fixed: float
    best_fixed_depth: int
    vs_oracle: float
    switches: int
    probe_share: float
    probe_steps: int
    fallbacks: tuple[int, ...]
    recoveries: tuple[int, ...]
    phase: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A replayed trace: the whole, and its phases in order where the trace names any."""

    whole: Part
    phases: tuple[Part, ...]
    failed: str | None

    def to_json(self) -> dict[str, Any]:
        """A mapping with the figures of the whole at its top."""
        return {
            "simulated": True,
            **_mapping(self.whole),
            "phases": [_mapping(part) for part in self.phases],
            "failed": self.failed,
        }


class Ground:
    """What each depth would make at each step of a trace: the ground that policies compete on."""

    def __init__(self, trace: Trace, costs: Costs) -> None:
        """Tabulate.

        Raises:
            SchemaError: the table has no depth that the trace can be replayed at.
        """
        self.trace = trace
        self.setting = setting_for(trace, costs)
        depths = self.setting.depths
        rows = [step.correct for step in trace.steps]
        sizes = np.array([len(row) for row in rows])
        flat = np.fromiter((value for row in rows for value in row), dtype=np.int64)
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        #: Tokens and ms by step and candidate.
        self.tokens = np.stack(
            [np.add.reduceat(np.minimum(flat, depth), starts) + sizes for depth in depths], axis=1
        )
        times = {
            size: [costs.time_ms(depth, int(size)) for depth in depths] for size in np.unique(sizes)
        }
        self.times: Array = np.array([times[size] for size in sizes])
        self.rates: Array = _windowed(self.tokens) / _windowed(self.times)
        self.rates[:, 0] = sizes / self.times[:, 0]


@dataclass(slots=True)
class _Course:
    """What a policy did, a value a step."""

    chosen: list[int] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)


def setting_for(trace: Trace, costs: Costs) -> Setting:
    """The depths that have step times and that the trace knows the drafts of.

    Raises:
        SchemaError: there is none but plain decoding.
    """
    depths = tuple(depth for depth in costs.depths if depth <= trace.depth)
    if len(depths) < 2:
        raise SchemaError(
            f"step times are known for depths {list(costs.depths)}, must have one from 1 to the "
            f"trace's {trace.depth}"
        )
    return Setting(depths, costs)


def replay(ground: Ground, controller: Controller) -> Result:
    """Run a policy over a trace.

    Args:
        ground: the trace with its table.
        controller: a fresh one, made for ``ground.setting``.
    """
    course = _run(ground, controller)
    chosen, settled = np.array(course.chosen), np.array(course.settled)
    phases = [
        _part(ground, chosen, settled, range(first, last), name)
        for first, last, name in _phases(ground.trace)
        if name is not None
    ]
    whole = _part(ground, chosen, settled, range(len(chosen)), None)
    return Result(whole, tuple(phases), controller.failed)


def _run(ground: Ground, controller: Controller) -> _Course:
    index = {depth: i for i, depth in enumerate(ground.setting.depths)}
    course = _Course()
    times = ground.times.tolist()
    settled = depth = 0
    shown: list[int] = []
    clock_ms = 0.0
    for number, step in enumerate(ground.trace.steps):
        decision = controller.decide(
            Observation(len(step.correct), depth, shown, time_s=clock_ms / 1000)
        )
        depth = decision.depth
        if decision.want == "settle":
            settled = depth
        course.chosen.append(index[depth])
        course.settled.append(index[settled])
        shown = [min(value, depth) for value in step.correct] if depth else []
        clock_ms += times[number][index[depth]]
    return course


def _part(ground: Ground, chosen: Places, settled: Places, steps: range, name: str | None) -> Part:
    here = np.arange(steps.start, steps.stop)
    tokens = ground.tokens[here, chosen[here]]
    times = ground.times[here, chosen[here]]
    rates = ground.rates[here]
    spent = times @ rates
    made, duration = int(tokens.sum()), float(times.sum())
    hardest = int(np.argmax(spent))
    # The step before belongs to the part: a change at its first step is the part's own.
    course = settled[max(0, steps.start - 1) : steps.stop]
    changes = np.flatnonzero(np.diff(course)) + max(0, steps.start - 1) + 1
    probing = chosen[here] != settled[here]
    alternative = tokens / rates[np.arange(len(here)), settled[here]]
    return Part(
        first_step=steps.start,
        steps=len(steps),
        tokens=made,
        duration_ms=duration,
        throughput=1000 * made / duration,
        vs_plain=made / float(spent[0]),
        vs_best_fixed=made / float(spent[hardest]),
        best_fixed_depth=ground.setting.depths[hardest],
        vs_oracle=made / float(times @ rates.max(axis=1)),
        switches=len(changes),
        probe_share=float((times - alternative)[probing].sum()) / duration,
        probe_steps=int(probing.sum()),
        fallbacks=tuple(int(i) for i in changes if settled[i] == 0),
        recoveries=tuple(int(i) for i in changes if settled[i - 1] == 0),
        phase=name,
    )


def _phases(trace: Trace) -> Iterator[tuple[int, int, str | None]]:
    """Runs of steps of one phase: first step, step after the last, name."""
    first = 0
    for number in range(1, len(trace.steps) + 1):
        ends = number == len(trace.steps)
        if ends or trace.steps[number].phase != trace.steps[first].phase:
            yield first, number, trace.steps[first].phase
            first = number


def _windowed(values: NDArray[Any]) -> Array:
    """Sums over the window centred on each step, cut off at the trace's ends."""
    sums = np.concatenate((np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)))
    steps = np.arange(len(values))
    high = np.minimum(steps + WINDOW // 2 + 1, len(values))
    low = np.maximum(steps - WINDOW // 2, 0)
    windowed: Array = sums[high] - sums[low]
    return windowed


def _mapping(part: Part) -> dict[str, Any]:
    mapping = {name: getattr(part, name) for name in Part.__slots__}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in mapping.items()
        if value is not None
    }
