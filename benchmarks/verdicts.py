"""How often verdicts are wrong, and how many passes they take: SIMULATED comparisons.

Each comparison is of two arms whose passes differ by simulated noise alone (A/A), or by that and a
true gain of 5 %. Passes go A B B A. Beside autospec's stopping rule stand rules in common use on
the same passes. The worlds above the first line are those that the project's aims name. These and
the worlds below them were looked at while the rule was chosen (the kind of mean, how the error is
spent over the looks, and that alpha leaves room for noise with a memory); critical values come
from normal noise alone. The worlds below the second line were written after that. A second table
shows how often 95 % intervals of a fixed number of pairs hold the truth.

``--seeds`` repeats everything with other noise; a figure is shown as its mean and its worst seed.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from autospec.evidence import Decision
from autospec.measure import stats
from autospec.measure.sequential import StoppingRule

Array = NDArray[Any]
RULE = StoppingRule()
PASSES = 2 * RULE.max_pairs
GAIN = 1.05
WHITE = 0.02


def white(rng: np.random.Generator, deviation: float = WHITE) -> Array:
    """Independent normal noise."""
    return rng.normal(0, deviation, PASSES)


def drift(rng: np.random.Generator) -> Array:
    """Each pass is 0.3 % slower than the one before, or faster, over all 40 passes."""
    return float(rng.choice([-1, 1])) * 0.003 * np.arange(PASSES)


def bursts(rng: np.random.Generator, share: float = 0.05) -> Array:
    """A share of the passes loses 10 % to 40 % of its speed."""
    hit = rng.random(PASSES) < share
    return np.where(hit, np.log(1 - rng.uniform(0.1, 0.4, PASSES)), 0.0)


def heavy_tails(rng: np.random.Generator) -> Array:
    """Student's t with 3 degrees of freedom, 2 % standard deviation."""
    return WHITE * rng.standard_t(3, PASSES) / math.sqrt(3)


def autocorrelated(rng: np.random.Generator) -> Array:
    """Noise of 2 % that remembers 0.6 of the pass before."""
    noise = white(rng)
    for i in range(1, PASSES):
        noise[i] = 0.6 * noise[i - 1] + 0.8 * noise[i]
    return noise


def slow_phases(rng: np.random.Generator) -> Array:
    """2 % white; another program takes 15 % for 4 passes on average, a tenth of the time."""
    noise, slow = white(rng), False
    for i in range(PASSES):
        slow = bool(rng.random() < (0.75 if slow else 1 / 36))
        noise[i] += math.log(0.85) if slow else 0.0
    return noise


def skewed(rng: np.random.Generator) -> Array:
    """No pass is faster than the machine; the loss is exponential, 2 % on average."""
    return -rng.exponential(WHITE, PASSES)


def wave(rng: np.random.Generator) -> Array:
    """2 % white on a wave of 3 % with a period of 7 passes, from anywhere in it."""
    phase = rng.uniform(0, 2 * math.pi)
    return white(rng) + 0.03 * np.sin(2 * math.pi * np.arange(PASSES) / 7 + phase)


#: Logarithms of the speeds of all passes in the order they are made.
World = Callable[[np.random.Generator], Array]
AIMED: Mapping[str, World] = {
    "white 2 %": white,
    "white + drift": lambda rng: white(rng) + drift(rng),
    "white + bursts": lambda rng: white(rng) + bursts(rng),
    "white + drift + bursts": lambda rng: white(rng) + drift(rng) + bursts(rng),
}
KNOWN: Mapping[str, World] = {
    "heavy tails (t3)": heavy_tails,
    "autocorrelated 0.6": autocorrelated,
    "white 5 %": lambda rng: white(rng, 0.05),
    "bursts in 15 %": lambda rng: white(rng) + bursts(rng, 0.15),
}
UNSEEN: Mapping[str, World] = {
    "slow phases": slow_phases,
    "skewed": skewed,
    "wave": wave,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rule said of one comparison, after how many passes an arm."""

    decision: Decision
    repeats: int


def autospec_rule(a: Array, b: Array) -> Outcome:
    """A look after each pair from the fifth to the twentieth."""
    for n in range(RULE.least_pairs, RULE.max_pairs + 1):
        look = RULE.look(a[:n].tolist(), b[:n].tolist())
        if look.stop:
            break
    return Outcome(look.decision, n)


def three_means(a: Array, b: Array) -> Outcome:
    """Three passes each; the higher mean wins if it is more than 2 % higher."""
    found = float(a[:3].mean() / b[:3].mean())
    decision: Decision = "equivalent"
    if abs(found - 1) > stats.MARGIN:
        decision = "faster" if found > 1 else "slower"
    return Outcome(decision, 3)


def three_ranges(a: Array, b: Array) -> Outcome:
    """Three passes each; they differ if their ranges do not overlap."""
    decision: Decision = "inconclusive"
    if a[:3].min() > b[:3].max():
        decision = "faster"
    elif a[:3].max() < b[:3].min():
        decision = "slower"
    return Outcome(decision, 3)


def t_every_look(a: Array, b: Array) -> Outcome:
    """An ordinary 95 % paired t interval after each pair from the third to the twentieth."""
    logs = np.log(a / b)
    for n in range(3, RULE.max_pairs + 1):
        mean, half = t_interval(logs[:n])
        found = stats.Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), n)
        decision = stats.verdict(found)
        if decision != "inconclusive":
            break
    return Outcome(decision, n)


RULES: Mapping[str, Callable[[Array, Array], Outcome]] = {
    "autospec": autospec_rule,
    "3 runs, means": three_means,
    "3 runs, ranges": three_ranges,
    "t at every look": t_every_look,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One rule in one world, over all comparisons of one seed; shares are fractions.

    Attributes:
        world: name of the noise.
        rule: name of the rule.
        seed: of the noise.
        false: share of A/A comparisons called faster or slower.
        equivalent: share of A/A comparisons called equivalent.
        found: share of true gains called faster.
        repeats: median passes an arm until the verdict on a true gain.
    """

    world: str
    rule: str
    seed: int
    false: float
    equivalent: float
    found: float
    repeats: float


def arms(world: World, rng: np.random.Generator, gain: float) -> tuple[Array, Array]:
    """Both arms' speeds, paired, of passes made in the order A B B A."""
    pairs = np.exp(world(rng)).reshape(-1, 2)
    pairs[1::2] = pairs[1::2, ::-1]
    return gain * pairs[:, 0], pairs[:, 1]


def simulate(name: str, world: World, seed: int, comparisons: int) -> list[Row]:
    """All rules on the same comparisons."""
    outcomes: dict[float, dict[str, list[Outcome]]] = {}
    for gain in (1.0, GAIN):
        rng = np.random.default_rng([seed, len(name), *name.encode(), round(100 * gain)])
        made = [arms(world, rng, gain) for _ in range(comparisons)]
        outcomes[gain] = {rule: [judge(a, b) for a, b in made] for rule, judge in RULES.items()}
    rows = []
    for rule in RULES:
        same = [outcome.decision for outcome in outcomes[1.0][rule]]
        gains = outcomes[GAIN][rule]
        rows.append(
            Row(
                name,
                rule,
                seed,
                false=(same.count("faster") + same.count("slower")) / comparisons,
                equivalent=same.count("equivalent") / comparisons,
                found=[outcome.decision for outcome in gains].count("faster") / comparisons,
                repeats=statistics.median(outcome.repeats for outcome in gains),
            )
        )
    return rows


def t_interval(logs: Array) -> tuple[float, float]:
    """Mean and half the width of Student's 95 % interval."""
    n = len(logs)
    return float(logs.mean()), float(stdtrit(n - 1, 0.975) * logs.std(ddof=1) / math.sqrt(n))


def robust_holds(logs: Array, _rng: np.random.Generator) -> bool:
    """Whether ``stats.ratio`` holds a ratio of 1."""
    found = stats.ratio(np.exp(logs).tolist(), [1.0] * len(logs))
    return found.low <= 1 <= found.high


def percentile_holds(logs: Array, rng: np.random.Generator) -> bool:
    """Whether the percentile bootstrap of the pairs does."""
    means = rng.choice(logs, (1000, len(logs))).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return bool(low <= 0 <= high)


def bootstrap_t_holds(logs: Array, rng: np.random.Generator) -> bool:
    """Whether the bootstrap-t of the pairs does; resamples of one pair alone are left out."""
    drawn = rng.choice(logs, (1000, len(logs)))
    errors = drawn.std(axis=1, ddof=1)
    usable = errors > 1e-12
    ratios = (drawn.mean(axis=1) - logs.mean())[usable] / errors[usable]
    low, high = np.quantile(ratios, [0.025, 0.975])
    return bool(logs.mean() - high * logs.std(ddof=1) <= 0 <= logs.mean() - low * logs.std(ddof=1))


def t_holds(logs: Array, _rng: np.random.Generator) -> bool:
    """Whether Student's interval does."""
    mean, half = t_interval(logs)
    return abs(mean) <= half


INTERVALS = {
    "stats.ratio": robust_holds,
    "Student's t": t_holds,
    "percentile bootstrap": percentile_holds,
    "bootstrap-t": bootstrap_t_holds,
}


def coverage(world: World, pairs: int, seed: int, comparisons: int) -> dict[str, float]:
    """Share of A/A comparisons whose 95 % interval holds 1, by method."""
    rng = np.random.default_rng(seed)
    logs = []
    for _ in range(comparisons):
        a, b = arms(world, rng, 1.0)
        logs.append(np.log(a / b)[:pairs])
    return {
        name: statistics.fmean(holds(row, rng) for row in logs) for name, holds in INTERVALS.items()
    }


def show_verdicts(rows: Sequence[Row]) -> None:
    """A line a world and rule: mean over the seeds, worst seed in brackets."""
    print(f"{'noise':<23}{'rule':<17}{'A/A false':>15}{'A/A equiv.':>12}", end="")
    print(f"{'+5 % found':>17}{'repeats':>10}")
    for world in dict.fromkeys(row.world for row in rows):
        if world in (next(iter(KNOWN)), next(iter(UNSEEN))):
            print("-" * 94)
        for rule in RULES:
            chosen = [row for row in rows if (row.world, row.rule) == (world, rule)]
            false, found = [r.false for r in chosen], [r.found for r in chosen]
            repeats = [r.repeats for r in chosen]
            print(
                f"{world if rule == 'autospec' else '':<23}{rule:<17}"
                f"{statistics.fmean(false):>7.1%} ({max(false):>5.1%})"
                f"{statistics.fmean(r.equivalent for r in chosen):>11.1%}"
                f"{statistics.fmean(found):>8.1%} ({min(found):>6.1%})"
                f"{statistics.fmean(repeats):>5.1f} ({max(repeats):g})"
            )


def show_coverage(table: Mapping[str, Mapping[int, Mapping[str, float]]]) -> None:
    """A line a world and number of pairs."""
    print(f"\n{'95 % interval holds 1':<24}{'pairs':>5}", end="")
    print("".join(f"{name:>22}" for name in INTERVALS))
    for world, by_pairs in table.items():
        for pairs, shares in by_pairs.items():
            print(f"{world:<24}{pairs:>5}", end="")
            print("".join(f"{shares[name]:>22.1%}" for name in INTERVALS))


def reached(rows: Sequence[Row]) -> dict[str, list[float]]:
    """The aims, in the worst world that they name: mean over the seeds, then the worst seed."""
    ours = [row for row in rows if row.rule == "autospec" and row.world in AIMED]
    worlds = {name: [row for row in ours if row.world == name] for name in AIMED}
    false, found, repeats = (
        [[getattr(row, figure) for row in chosen] for chosen in worlds.values()]
        for figure in ("false", "found", "repeats")
    )
    return {
        "false, at most 0.05": [max(map(statistics.fmean, false)), max(map(max, false))],
        "found, at least 0.9": [min(map(statistics.fmean, found)), min(map(min, found))],
        "repeats, at most 8": [max(map(statistics.fmean, repeats)), max(map(max, repeats))],
    }


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--comparisons", type=int, default=200, help="of each kind and seed")
    parser.add_argument("--intervals", type=int, default=2000, help="for each coverage; 0 for none")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate and print."""
    options = parse(arguments)
    print(
        f"SIMULATED: {options.comparisons} comparisons of each kind, {len(options.seeds)} seeds; "
        "mean (worst seed)"
    )
    worlds = {**AIMED, **KNOWN, **UNSEEN}
    rows = [
        row
        for name, world in worlds.items()
        for seed in options.seeds
        for row in simulate(name, world, seed, options.comparisons)
    ]
    show_verdicts(rows)
    table = {
        name: {n: coverage(world, n, options.seeds[0], options.intervals) for n in (3, 5, 8)}
        for name, world in worlds.items()
        if options.intervals
    }
    if table:
        show_coverage(table)
    aims = reached(rows)
    print("\nautospec in the worst world above the first line, mean (worst seed):")
    for aim, (mean, worst) in aims.items():
        print(f"  {aim}: {mean:.3g} ({worst:.3g})")
    if options.json:
        figures = {"simulated": True, "aims": aims, "verdicts": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps({**figures, "coverage": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
