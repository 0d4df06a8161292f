"""Seeded search problems in which a sampler must hold its ground. Simulated.

A seed draws a target with a roofline, two to four drafting methods with their own costs and
acceptance, the loads, what runs out of memory, and quirks of single shapes. The forms differ from
those of the cost model on purpose: a smooth roofline, trees whose levels share the tokens by what
they are worth, blocks that lose with their length, branches of n-grams that hit more and reach less
deep. A trial makes passes of which each has noise, and shows what a real one shows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from autospec.config import PLAIN, SpecConfig
from autospec.tune.problems import Problem, Result
from autospec.tune.seen import LoadSeen, Seen
from autospec.tune.space import SearchSpace, enumerate_space

__all__ = ["NOISE", "PASSES", "make_table", "make_world"]

Floats = NDArray[np.float64]

#: Standard deviation of the log throughput of one pass.
NOISE: Final = 0.03
#: Passes of a trial at each load.
PASSES: Final = 3
#: Share of the worlds drawn so that drafting is dear and seldom right.
_HARD: Final = 0.3
#: Verify steps of a trial.
_STEPS: Final = 1500
_LOADS: Final = ((1,), (1, 8), (1, 4, 8), (1, 8, 32), (1, 16, 64), (8, 32))
#: Draft lengths of one method of a table.
_LENGTHS: Final = (
    (1, 2, 3, 4),
    (1, 2, 3, 4, 5),
    (1, 2, 3, 4, 5, 6, 7),
    (1, 3, 5, 7),
    (2, 4, 8, 16),
    (3, 7, 11, 15),
    (4, 8, 12),
)
_TREES: Final = ("EAGLE3", "STANDALONE", "NEXTN")
_METHODS: Final = ("NGRAM", "DFLASH", *_TREES)


@dataclass(frozen=True, slots=True)
class _Target:
    """Times in ms of a forward pass: waiting for memory, arithmetic a token, and a request."""

    memory: float
    token: float
    request: float
    sharpness: float

    def time(self, batch_size: int, tokens: int) -> float:
        """One forward pass over this many tokens a request."""
        p = self.sharpness
        work = (self.memory**p + (self.token * batch_size * tokens) ** p) ** (1 / p)
        return float(work + self.request * batch_size)


@dataclass(frozen=True, slots=True)
class _Method:
    """One way to draft.

    Attributes:
        first: rate at the first position of a short chain.
        fall: what the rate loses from one position to the next.
        wider: exponent with which branches take away misses.
        longer: what the logit loses when the draft is twice as long.
        fixed: ms of speculating at all.
        draft: ms of one pass of the draft for one token.
        ridge: tokens a pass from which on the draft is bound by arithmetic.
        check: share by which 64 verified tokens make verification dearer.
        parallel: whether one pass drafts all tokens.
    """

    first: float
    fall: float
    wider: float
    longer: float
    fixed: float
    draft: float
    ridge: float
    check: float
    parallel: bool = False


def make_world(seed: int) -> Problem:
    """Draw a world; the same seed gives the same one."""
    rng = np.random.default_rng([seed, 1])
    hard = bool(rng.random() < _HARD)
    loads = _LOADS[rng.integers(len(_LOADS))]
    memory = float(np.exp(rng.uniform(np.log(2), np.log(40))))
    ridge = float(np.exp(rng.uniform(np.log(4 if hard else 16), np.log(64 if hard else 600))))
    target = _Target(
        memory, memory / ridge, memory * rng.uniform(0, 0.02), float(rng.uniform(2, 6))
    )
    names = rng.choice(_METHODS, size=int(rng.integers(2, 5)), replace=False)
    methods = {
        str(name): _draw_method(rng, str(name), target, hard=hard, parallel=name == "DFLASH")
        for name in names
    }
    rest = float(rng.uniform(0, 0.3)) * target.time(1, 1)
    limit = float(np.exp(rng.uniform(np.log(64), np.log(4096))))
    quirks = float(rng.uniform(0, 0.03))
    truth: dict[SpecConfig, float | None] = {}
    details: dict[SpecConfig, tuple[Floats, list[tuple[int, float, float]]]] = {}
    for config in (PLAIN, *_arms(rng, [str(name) for name in names])):
        quirk = float(np.exp(quirks * rng.standard_normal()))
        if _memory(config) * max(loads) > limit * 8:
            truth[config] = None
            continue
        rates = _rates(config, methods.get(config.algorithm))
        shown = []
        for load in loads:
            step = _step_time(config, methods.get(config.algorithm), target, load) * quirk
            speed = 1000.0 / (step / (load * (1 + rates.sum())) + rest / load)
            shown.append((load, step, speed))
        truth[config] = statistics.geometric_mean(speed for _, _, speed in shown)
        details[config] = rates, shown

    def reveal(config: SpecConfig, trial_seed: int) -> Result:
        if config not in details:
            return Result(None)
        place = sorted(truth).index(config)
        return _trial(np.random.default_rng([seed, trial_seed, place, 2]), *details[config])

    return Problem(f"synthetic:{seed}", truth, reveal)


def make_table(seed: int) -> Problem:
    """Draw a table such as those that are published: chains of two to four methods at one load.

    A trial shows a throughput and the share of steps by position, both without noise.
    """
    rng = np.random.default_rng([seed, 3])
    hard = bool(rng.random() < _HARD / 2)
    load = int(rng.choice([1, 4, 16, 64]))
    memory, ridge = 10.0, float(np.exp(rng.uniform(np.log(64), np.log(1000))))
    target = _Target(memory, memory / ridge, memory * rng.uniform(0, 0.02), 3.0)
    quirks = float(rng.uniform(0, 0.04))
    truth: dict[SpecConfig, float | None] = {
        PLAIN: 1000.0 * load / _step_time(PLAIN, None, target, load)
    }
    results = {PLAIN: Result(truth[PLAIN], Seen((LoadSeen(1, truth[PLAIN] or 0.0),)))}
    for number in range(int(rng.integers(2, 5))):
        drafter = _draw_method(
            rng, f"METHOD{number}", target, hard=hard, parallel=bool(rng.random() < 0.4)
        )
        for steps in _LENGTHS[rng.integers(len(_LENGTHS))]:
            arm = SpecConfig(f"METHOD{number}", steps, 1, steps + 1)
            rates = np.round(_rates(arm, drafter), 3)
            step = _step_time(arm, drafter, target, load)
            step *= float(np.exp(quirks * rng.standard_normal()))
            speed = 1000.0 * load * (1 + float(rates.sum())) / step
            seen = Seen((LoadSeen(1, speed),), 1 + float(rates.sum()), tuple(rates.tolist()))
            truth[arm], results[arm] = speed, Result(speed, seen)
    return Problem(f"table:{seed}", truth, lambda config, _seed: results[config])


def _draw_method(
    rng: np.random.Generator, name: str, target: _Target, *, hard: bool, parallel: bool
) -> _Method:
    first = float(rng.uniform(0.15, 0.55) if hard else rng.uniform(0.4, 0.93))
    draft = float(np.exp(rng.uniform(np.log(0.1 if hard else 0.015), np.log(0.6 if hard else 0.4))))
    return _Method(
        first=first * (0.7 if name == "NGRAM" else 1.0),
        fall=float(rng.uniform(-0.01, 0.05)) if name != "NGRAM" else float(rng.uniform(-0.05, 0)),
        wider=float(rng.uniform(0.2, 0.9)),
        longer=float(rng.uniform(0, 0.3 if parallel else 0.12)),
        fixed=target.memory * float(np.exp(rng.uniform(np.log(0.02), np.log(2.0)))),
        draft=target.memory * draft * (0.05 if name == "NGRAM" else 1.0),
        ridge=float(np.exp(rng.uniform(np.log(16), np.log(600)))),
        check=float(rng.uniform(0, 0.2)),
        parallel=parallel,
    )


def _arms(rng: np.random.Generator, names: Sequence[str]) -> tuple[SpecConfig, ...]:
    """The usual space of some methods, thinned at random to at most 40 arms a method."""
    drafts = tuple((name, f"/{name.lower()}") for name in names if name != "NGRAM")
    space = SearchSpace(tuple(names), drafts)
    listed = enumerate_space(space, _beyond_tree).candidates
    kept: list[SpecConfig] = []
    for name in names:
        mine = [config for config in listed if config.algorithm == name]
        chosen = rng.permutation(len(mine))[:40]
        kept += [mine[int(i)] for i in sorted(chosen)]
    return tuple(kept)


def _beyond_tree(config: SpecConfig) -> list[str]:
    """More tokens than the tree has nodes: SGLang's bound."""
    steps, topk, tokens = config.num_steps, config.topk, config.num_draft_tokens
    if not (steps and topk and tokens):
        return []
    most = 1 + topk + (steps - 1) * topk**2
    return [f"tokens={tokens} of at most {most}"] if tokens > most else []


def _memory(config: SpecConfig) -> int:
    """Slots that a request holds while a step is under way."""
    return (config.num_steps or 0) * (config.topk or 1) + (config.num_draft_tokens or 1)


def _rates(config: SpecConfig, drafter: _Method | None) -> Floats:
    """Share of steps whose first 1, 2, ... drafts are right."""
    if drafter is None:
        return np.zeros(0)
    block = config.option("block_size")
    breadth = int(config.option("ngram_max_bfs_breadth") or config.topk or 1)
    tokens = int(block) if isinstance(block, int) else config.num_draft_tokens or 2
    if config.algorithm == "NGRAM":
        depth = max(1, min(18, round((tokens - 1) / breadth**0.5)))
    else:
        depth = config.num_steps or tokens - 1
    # Levels share the tokens: each one node, the rest by what a level is worth.
    worth = np.array([max(drafter.first, 0.1) ** d for d in range(depth)])
    widths = 1 + max(0, tokens - 1 - depth) * worth / worth.sum()
    widths = np.minimum(widths, float(breadth)) if breadth > 1 else np.ones(depth)
    odds = drafter.first / (1 - drafter.first) * 2 ** (-drafter.longer * math.log2(depth / 4))
    first = odds / (1 + odds)
    chain = np.clip(first - drafter.fall * np.arange(depth), 0.02, 0.97)
    if config.option("ngram_match_type") == "PROB":
        chain = chain * 0.98
    rates: Floats = (1 - (1 - chain) * widths**-drafter.wider).cumprod()
    return rates


def _step_time(config: SpecConfig, drafter: _Method | None, target: _Target, load: int) -> float:
    block = config.option("block_size")
    tokens = int(block) if isinstance(block, int) else config.num_draft_tokens or 1
    verify = target.time(load, tokens)
    if drafter is None:
        return verify
    passes = 1 if drafter.parallel else config.num_steps or tokens
    work = load * (tokens if drafter.parallel else config.topk or 1)
    one = drafter.draft * (1 + (work / drafter.ridge) ** 2) ** 0.5
    return float(verify * (1 + drafter.check * tokens / 64) + drafter.fixed + passes * one)


def _trial(
    rng: np.random.Generator, rates: Floats, shown: Sequence[tuple[int, float, float]]
) -> Result:
    """Passes with noise, and steps drawn from the rates."""
    loads: list[LoadSeen] = []
    spreads: list[float] = []
    for load, step, speed in shown:
        noise = NOISE * rng.standard_normal(PASSES)
        spreads.append(float(noise.var(ddof=1)) / PASSES)
        counted = step * math.exp(NOISE / 3 * rng.standard_normal())
        middle = speed * math.exp(float(np.median(noise)))
        loads.append(LoadSeen(load, middle, float(load), counted))
    error = math.sqrt(sum(spreads)) / len(shown)
    throughput = statistics.geometric_mean(figure.throughput for figure in loads)
    if not len(rates):
        return Result(throughput, Seen(tuple(loads), error=error))
    exact = np.append(np.append(1.0, rates)[:-1] - rates, rates[-1])
    histogram = rng.multinomial(_STEPS, np.maximum(exact, 0) / np.maximum(exact, 0).sum())
    right = histogram[::-1].cumsum()[::-1][1:] / _STEPS
    seen = Seen(tuple(loads), 1 + float(right.sum()), tuple(right.tolist()), _STEPS, error)
    return Result(throughput, seen)
