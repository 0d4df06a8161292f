"""A machine that measures nothing: throughputs by formula, seconds from a counter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autospec.config import SpecConfig
from autospec.errors import AutospecError
from autospec.measurement import Measurement, Run
from autospec.tune.space import SearchSpace, enumerate_space, parse_space
from autospec.tune.study import Trial

SMALL_SPACE = parse_space(
    "NGRAM.tokens=4,8,16 NGRAM.breadth=1,4 match=BFS steps=1,3 topk=1,4 STANDALONE.tokens=8",
    SearchSpace(drafts=(("STANDALONE", "/models/small"),)),
)


def tree_bound(config: SpecConfig) -> list[str]:
    """SGLang's bound on the tokens of a tree, as one of an engine's rules."""
    steps, topk, tokens = config.num_steps, config.topk, config.num_draft_tokens
    if not (steps and topk and tokens):
        return []
    most = 1 + topk + (steps - 1) * topk**2
    return [f"tokens={tokens} is more than the {most} nodes of the tree"] if tokens > most else []


#: Nine valid configurations of two methods.
CANDIDATES = enumerate_space(SMALL_SPACE, tree_bound).candidates


def speed(config: SpecConfig) -> float:
    """Throughput over plain's: best at a middle size, a little better with a wide tree."""
    if config.is_plain:
        return 1.0
    tokens = config.num_draft_tokens or 1
    breadth = config.topk or int(config.option("ngram_max_bfs_breadth") or 1)
    gain = 0.5 if config.algorithm == "NGRAM" else 0.8
    return 0.7 + gain * math.exp(-((math.log2(tokens) - 3) ** 2)) + 0.02 * math.log2(breadth)


def measured(
    config: SpecConfig, throughputs: Mapping[int, Sequence[float]], part: str = "tune"
) -> Measurement:
    """A measurement with these output throughputs, concurrency -> one a repeat."""
    runs = tuple(
        Run(part, concurrency, repeat, value, (0.0, 1.0), 1.0, ())
        for concurrency, values in throughputs.items()
        for repeat, value in enumerate(values)
    )
    return Measurement(config, runs, launch_s=10.0, duration_s=30.0)


@dataclass
class FakeMachine:
    """Measures by ``speed``; its clock moves only while it measures.

    Attributes:
        errors: configuration -> what happens instead of a measurement.
        trial_s: seconds that each measurement takes.
        now_s: the clock.
        measured: every configuration asked for, in order.
    """

    errors: dict[SpecConfig, BaseException] = field(default_factory=dict)
    trial_s: float = 30.0
    now_s: float = 1000.0
    measured: list[SpecConfig] = field(default_factory=list)

    def clock(self) -> float:
        """Seconds."""
        return self.now_s

    def measure(self, config: SpecConfig) -> Measurement:
        """A measurement, or the error put down for it."""
        self.measured.append(config)
        self.now_s += self.trial_s
        if config in self.errors:
            raise self.errors[config]
        base = {1: 10.0, 8: 50.0}
        return measured(config, {level: [v * speed(config)] * 3 for level, v in base.items()})


@dataclass
class Recorder:
    """A listener that keeps what it was told."""

    started: list[tuple[int, SpecConfig, str]] = field(default_factory=list)
    finished: list[Trial] = field(default_factory=list)

    def trial_started(self, number: int, config: SpecConfig, reason: str) -> None:
        """Keep it."""
        self.started.append((number, config, reason))

    def trial_finished(self, trial: Trial) -> None:
        """Keep it."""
        self.finished.append(trial)


def failing(configs: Iterable[SpecConfig], error: AutospecError) -> dict[SpecConfig, BaseException]:
    """The same error for each of these."""
    return dict.fromkeys(configs, error)
