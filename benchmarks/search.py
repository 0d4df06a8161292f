"""How well the search searches: every figure that needs no server, in one run.

The default sampler beside ``grid``, ``random``, plain scikit-optimize (``gp``) and Optuna's TPE, at
equal numbers of trials, on three kinds of problems whose answer is known: a published table of
throughputs (``--panels``, in the columns that ``autospec replay search`` reads), the recorded grid
of the CPU demo, and synthetic worlds (SIMULATED: ``autospec.tune.worlds``). Then how well the cost
model predicts, and how long one ``ask`` takes.

The published table was looked at while the priors were chosen, so its figures are no blind test:
``docs/search.md`` says what was changed then. Neither code nor priors hold a figure of it.

The exit code is 1 when an aim is missed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from search_steps import step_errors
from search_tables import MARGIN, Figure, aim, right_on_plain, searched, show

from autospec.config import PLAIN
from autospec.tune.acceptance import Drafts, fit_acceptance, truncated_length
from autospec.tune.grid import read_grid
from autospec.tune.panels import read_panels
from autospec.tune.problems import Problem, num_trials, summarize
from autospec.tune.space import SearchSpace, enumerate_space, parse_space
from autospec.tune.structured import StructuredSampler
from autospec.tune.tables import grid_problem
from autospec.tune.worlds import make_world

GRID = Path("benchmarks/data/cpu_demo_grid.jsonl")
#: What each kind of problem allows.
PANEL_SHARE, GRID_SHARE, WORLD_TRIALS = 0.4, 0.25, 12
OTHERS = ("grid", "random", "gp", "tpe")


def panel_figures(path: Path | None, seeds: range) -> list[Figure]:
    """Searches of the published table, and the acceptance that its longest drafts predict."""
    if path is None:
        return [Figure("panels: not given (--panels FILE)", None, "", reached=False)]
    problems = read_panels(path)
    outcomes = {
        name: searched(problems, name, seeds, lambda p: num_trials(p, None, PANEL_SHARE))
        for name in ("structured", *OTHERS)
    }
    show(f"published panels, at most {PANEL_SHARE:.0%} of the arms", outcomes)
    mine = summarize(outcomes["structured"])
    return [
        aim("panels: within 2 %", mine["within_2pct"], ">=", 0.95),
        aim("panels: mean regret", mine["mean_regret"], "<=", 0.005),
        aim("panels: slowest choice over plain", mine["least_vs_plain"], ">=", 0.99),
        *length_figures(problems),
    ]


def length_figures(problems: Sequence[Problem]) -> list[Figure]:
    """Accept length at every shorter draft, from the longest alone and from the two ends."""
    sums: list[float] = []
    model: list[float] = []
    both: list[float] = []
    by_method: dict[str, list[float]] = {}
    for problem in problems:
        arms = {arm: problem.reveal(arm, 0).seen for arm in problem.truth if not arm.is_plain}
        for name in sorted({arm.algorithm for arm in arms}):
            lengths = {a.num_steps or 0: s for a, s in arms.items() if a.algorithm == name and s}
            longest, shortest = max(lengths), min(lengths)
            label = next(problem.label(a) for a in arms if a.algorithm == name).rpartition(" ")[0]
            ends = [Drafts(lengths[n].rates, depth=n) for n in (longest, shortest)]
            curve, wider = fit_acceptance(ends[:1], longest), fit_acceptance(ends, longest)
            for depth in sorted(set(lengths) - {longest}):
                seen = lengths[depth].accept_length or 1.0
                sums.append(truncated_length(lengths[longest].rates, depth) / seen - 1)
                model.append(curve.length(depth)[0] / seen - 1)
                by_method.setdefault(label, []).append(model[-1])
                if depth != shortest:
                    both.append(wider.length(depth)[0] / seen - 1)
    print("\naccept length at shorter drafts, relative error")
    rows = {
        "longest, sum": sums,
        "longest, model": model,
        "longest and shortest, model": both,
        **{f"  {name}, model": errors for name, errors in by_method.items()},
    }
    for name, errors in rows.items():
        far = statistics.fmean(abs(e) <= 0.03 for e in errors)
        size = statistics.fmean(map(abs, errors))
        print(
            f"  {name:30} {len(errors):4} points, mean size {size:.1%}, "
            f"{min(errors):+.1%} to {max(errors):+.1%}, {far:.0%} within 3 %"
        )
    return [
        aim("panels: mean error of accept length", statistics.fmean(map(abs, model)), "<=", 0.03),
        aim("panels: largest error of accept length", max(map(abs, model)), "<=", 0.03),
    ]


def grid_figures(path: Path, seeds: range) -> list[Figure]:
    """Searches of the recorded grid, and its step times after three shapes."""
    if not path.is_file():
        return [Figure(f"recorded grid: {path} is not there", None, "", reached=False)]
    grid = read_grid(path)
    problem = grid_problem(grid, path.stem)
    found = f"{len(grid.finished())} of {len(grid.header.launches)} launches"
    outcomes = {
        name: searched([problem], name, seeds, lambda p: num_trials(p, None, GRID_SHARE))
        for name in ("structured", *OTHERS)
    }
    show(f"recorded grid ({found}), at most {GRID_SHARE:.0%} of the cells", outcomes)
    best, truth = problem.best, problem.truth
    print(f"  best: {best.label}, {(truth[best] or 0.0) / (truth[PLAIN] or 1.0):.3f}x plain")
    mine = summarize(outcomes["structured"])
    other = min(summarize(outcomes[name])["mean_regret"] for name in OTHERS)
    errors = step_errors(grid, problem, seeds)
    print(
        f"  step times: a fit to every cell misses them by {errors.every:.1%}, one to single "
        f"passes of a search's first three shapes those of the others by {errors.asked:.1%}"
    )
    return [
        aim("grid: within 2 %", mine["within_2pct"], ">=", 0.9),
        aim("grid: mean regret, half of the best other's", mine["mean_regret"], "<=", other / 2),
        aim("grid: step time after the longest of each method", errors.longest, "<=", 0.05),
    ]


def world_figures(worlds: range) -> list[Figure]:
    """Searches of synthetic worlds, one seed each."""
    problems = [make_world(seed) for seed in worlds]
    outcomes = {
        name: searched(problems, name, range(1), lambda _p: WORLD_TRIALS)
        for name in ("structured", *OTHERS)
    }
    best = [(p.truth[p.best] or 0.0) / (p.truth[PLAIN] or 1.0) for p in problems]
    failing = statistics.fmean(
        statistics.fmean(value is None for value in problem.truth.values()) for problem in problems
    )
    show(f"{len(problems)} synthetic worlds (simulated), {WORLD_TRIALS} trials", outcomes)
    print(
        f"  plain decoding is best in {sum(b <= 1 for b in best)}, nothing is more than 2 % faster "
        f"in {sum(b <= 1 + MARGIN for b in best)}; {failing:.0%} of the arms crash"
    )
    right = statistics.fmean(map(right_on_plain, outcomes["structured"]))
    return [aim("worlds: right verdict on plain decoding", right, ">=", 0.98)]


def ask_figures() -> list[Figure]:
    """Time of one ask on a space of 3,000 configurations, after 1 to 40 results."""
    drafts = tuple((f"EAGLE{i}", f"/{i}") for i in ("", "3"))
    words = "steps=1,2,3,4,5,6,7,8,9,10 topk=1,2,3,4,5,6,7,8 "
    space = SearchSpace((), (*drafts, ("STANDALONE", "/s")))
    listed = enumerate_space(
        parse_space(words + "tokens=" + ",".join(map(str, range(4, 65, 2))), space), lambda _c: []
    ).candidates
    candidates = [listed[int(i)] for i in np.random.default_rng(0).permutation(len(listed))[:3000]]
    world = make_world(0)
    shown = [world.reveal(arm, 0) for arm in sorted(world.truth)]
    results = itertools.cycle(result for result in shown if result.seen is not None)
    sampler = StructuredSampler(candidates, 0)
    sampler.tell(PLAIN, 0.0, world.reveal(PLAIN, 0).seen)
    times = []
    for _ in range(40):
        begin = time.perf_counter()
        proposal = sampler.ask()
        times.append(time.perf_counter() - begin)
        result = next(results)
        if proposal is not None:
            sampler.tell(proposal.config, 0.1, result.seen)
    print(
        f"\none ask of {len(candidates)} configurations: median {statistics.median(times):.3f} s, "
        f"longest {max(times):.3f} s"
    )
    return [aim("ask: longest of 40, in s", max(times), "<=", 0.1)]


def main() -> int:
    """Measure, print, and say whether every aim is reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--panels", type=Path, help="a published table")
    parser.add_argument("--grid", type=Path, default=GRID, help="a recorded grid")
    parser.add_argument("--seeds", type=int, default=20, help="searches of each problem")
    parser.add_argument("--worlds", type=int, default=200, help="synthetic worlds, seeds 0, 1, ...")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=UserWarning, module=r"(sklearn|skopt|optuna)\.")
    figures = [
        *panel_figures(given.panels, range(given.seeds)),
        *grid_figures(given.grid, range(given.seeds)),
        *world_figures(range(given.worlds)),
        *ask_figures(),
    ]
    print(f"\n{'figure':48}{'value':>10}  aim")
    for figure in figures:
        value = "-" if figure.value is None else f"{figure.value:.4g}"
        word = "reached" if figure.reached else "MISSED"
        print(f"{figure.name:48}{value:>10}  {figure.aim:10} {word}")
    if given.json is not None:
        rows: list[dict[str, Any]] = [asdict(figure) for figure in figures]
        given.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 0 if all(figure.reached for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
