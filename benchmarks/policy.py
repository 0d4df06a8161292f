"""The runtime policy against plain decoding, fixed depths, an oracle and two rules. SIMULATED.

Every policy runs over the same traces of ``autospec.control.worlds``: all worlds, and for each seed
another model, batch size and course of acceptance. Ratios are weighted by the time that a policy
spent, as ``autospec replay policy`` gives them. A decision's time is measured, on this machine.

The figures come with what they have to reach; the exit code is 1 if one does not. ``--seeds`` from
1000 upwards are for trying things out: the figures are of seeds 0 to 19.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autospec.control.load import load_policy, make_controller
from autospec.control.policy import Observation, Setting
from autospec.control.replay import Ground, Part, Result, replay
from autospec.control.worlds import TABLES, WORLDS, World, make_world

OURS, BUILT_IN, THRESHOLD = "throughput", "sglang-adaptive", "threshold"
#: Step after a change within which a fallback or a return must come.
NEVER = 10**6


@dataclass(frozen=True, slots=True)
class Run:
    """One world of one seed under every policy."""

    world: World
    seed: int
    results: dict[str, Result]

    def ours(self) -> Part:
        """Figures of the policy under test."""
        return self.results[OURS].whole

    def against(self, other: str) -> float:
        """Its throughput over another policy's."""
        return self.ours().throughput / self.results[other].whole.throughput


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with what it has to reach."""

    name: str
    value: float
    bound: float
    at_least: bool

    @property
    def holds(self) -> bool:
        """Whether it is reached."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def run_all(seeds: Iterable[int]) -> list[Run]:
    """Every world of every seed under every policy."""
    runs = []
    for seed in seeds:
        for name in WORLDS:
            world = make_world(name, seed)
            ground = Ground(world.trace, world.model.costs)
            results = {
                policy: replay(ground, make_controller(load_policy(policy), ground.setting))
                for policy in (OURS, BUILT_IN, THRESHOLD)
            }
            runs.append(Run(world, seed, results))
        print(f"seed {seed}: done", file=sys.stderr)
    return runs


def switches_a_phase(run: Run) -> float:
    """Mean over the phases of a world."""
    return statistics.mean(part.switches for part in run.results[OURS].phases)


def lags(runs: Iterable[Run], phase: str) -> list[int]:
    """Steps from a sudden change to this phase until the policy followed, a value a change."""
    found = []
    for run in runs:
        for part in run.results[OURS].phases[1:]:
            if part.phase and part.phase.startswith(phase):
                events = part.fallbacks if phase == "low" else part.recoveries
                found.append(events[0] - part.first_step if events else NEVER)
    return found


def decision_us(batch_size: int = 64, steps: int = 20_000) -> float:
    """Mean time of one decision, from observation to answer, over steps of many kinds."""
    world = make_world("collapse", 1000)
    setting = Setting(world.model.costs.depths, world.model.costs)
    controller = make_controller(load_policy(OURS), setting)
    rows = [step.correct for step in world.trace.steps]
    shown = [(row * batch_size)[:batch_size] for row in rows]
    spent = depth = 0
    correct: tuple[int, ...] = ()
    for number in range(steps):
        begin = time.perf_counter_ns()
        decision = controller.decide(Observation(batch_size, depth, correct))
        spent += time.perf_counter_ns() - begin
        depth = decision.depth
        row = shown[number % len(shown)]
        correct = tuple(min(value, depth) for value in row) if depth else ()
    return spent / steps / 1000


def figures(runs: Sequence[Run]) -> list[Figure]:
    """What the policy has to reach."""
    worlds = {name: [run for run in runs if run.world.name == name] for name in WORLDS}

    def worst(value: Callable[[Run], float]) -> float:
        """The lowest mean over seeds of any world."""
        return min(statistics.mean(map(value, same)) for same in worlds.values())

    changing = [run for run in runs if run.world.changing]
    marginal = [run.ours() for run in worlds["stationary marginal"]]
    per_10k = 10_000 / sum(part.steps for part in marginal)
    low = [run.ours() for run in worlds["stationary low"]]
    return [
        Figure("of plain, any world", worst(lambda r: r.ours().vs_plain), 0.98, at_least=True),
        Figure(
            "of the oracle, mean",
            statistics.mean(run.ours().vs_oracle for run in runs),
            0.98,
            at_least=True,
        ),
        Figure(
            "of the oracle, any world", worst(lambda r: r.ours().vs_oracle), 0.95, at_least=True
        ),
        Figure(
            "of the best fixed depth, any world",
            worst(lambda r: r.ours().vs_best_fixed),
            0.98,
            at_least=True,
        ),
        *(
            figure
            for other in (BUILT_IN, THRESHOLD)
            for figure in (
                Figure(
                    f"over {other}, any world",
                    worst(lambda r, other=other: r.against(other)),  # type: ignore[misc]  # mypy cannot infer a lambda's default
                    0.995,
                    at_least=True,
                ),
                Figure(
                    f"over {other}, changing worlds",
                    statistics.mean(run.against(other) for run in changing),
                    1.03,
                    at_least=True,
                ),
            )
        ),
        Figure(
            "steps to plain after a collapse, median",
            statistics.median(lags(worlds["collapse"], "low")),
            50,
            at_least=False,
        ),
        Figure(
            "steps to return after recovery, median",
            statistics.median(lags(worlds["collapse"], "high")),
            200,
            at_least=False,
        ),
        Figure(
            "false fallbacks in 10,000 steps at 1.1x",
            sum(len(part.fallbacks) for part in marginal) * per_10k,
            1,
            at_least=False,
        ),
        Figure(
            "share given up to probing, stationary low",
            statistics.mean(part.probe_share for part in low),
            0.01,
            at_least=False,
        ),
        Figure(
            "switches a phase, any world",
            max(statistics.mean(map(switches_a_phase, same)) for same in worlds.values()),
            2,
            at_least=False,
        ),
        Figure("µs a decision at batch size 64, measured", decision_us(), 20, at_least=False),
    ]


def show(runs: Sequence[Run], reached: Sequence[Figure]) -> None:
    """Print every world and every figure."""
    print("SIMULATED, mean over seeds and worst seed\n")
    heads = ("of plain", "of fixed", "of oracle", "/ sglang", "/ threshold", "switches", "probing")
    print(f"{'world':20}" + "".join(f"{head:>14}" for head in heads))
    values: tuple[Callable[[Run], float], ...] = (
        lambda run: run.ours().vs_plain,
        lambda run: run.ours().vs_best_fixed,
        lambda run: run.ours().vs_oracle,
        lambda run: run.against(BUILT_IN),
        lambda run: run.against(THRESHOLD),
    )
    for name in WORLDS:
        same = [run for run in runs if run.world.name == name]
        cells = []
        for value in values:
            each = [value(run) for run in same]
            cells.append(f"{statistics.mean(each):.3f} {min(each):.3f}")
        switches = [part.switches for run in same for part in run.results[OURS].phases]
        cells.append(f"{statistics.mean(switches):.1f} {max(switches)}")
        cells.append(f"{statistics.mean(run.ours().probe_share for run in same):.2%}")
        print(f"{name:20}" + "".join(f"{cell:>14}" for cell in cells))
    print("\nby table of step times, of the oracle")
    tables = list(TABLES)
    for number, table in enumerate(tables):
        near = [run.ours().vs_oracle for run in runs if run.seed % len(tables) == number]
        if near:
            print(f"{table:20}{statistics.mean(near):14.3f}{min(near):8.3f}")
    print()
    for figure in reached:
        sign = ">=" if figure.at_least else "<="
        mark = "" if figure.holds else "   MISSED"
        print(f"{figure.name:45}{figure.value:10.3f}   {sign} {figure.bound:g}{mark}")
    falls, returns = lags(runs, "low"), lags(runs, "high")
    for name, found in (("fall", falls), ("return", returns)):
        late = sum(lag > 200 for lag in found)
        print(
            f"steps to {name}, collapse and bursts: median {statistics.median(found):.0f}, "
            f"later than 200: {late} of {len(found)}"
        )


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 20), metavar=("FROM", "TO"))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every result there too")
    arguments = parser.parse_args()
    runs = run_all(range(*arguments.seeds))
    reached = figures(runs)
    show(runs, reached)
    if arguments.json:
        document = [
            {"world": run.world.name, "seed": run.seed, "policy": policy, **result.to_json()}
            for run in runs
            for policy, result in run.results.items()
        ]
        arguments.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0 if all(figure.holds for figure in reached) else 1


if __name__ == "__main__":
    sys.exit(main())
