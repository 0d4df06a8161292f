"""Depths of a chain in one launch against a launch each, on the real engine on the CPU.

STANDALONE with the demo's drafter. Each round makes both, in turned order: one server that is told
its depth before each pass, and one server a depth. Passes are those of ``autospec tune``. Shown are
throughput, step time and accept length of one launch over those of separate ones, with the interval
of the rounds' mean, and what was spent. The rounds of separate launches against each other
show how far two launches of the same thing lie apart.

Exit code 1 if an interval of the ratios excludes 1 by more than 3 %.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autospec import demo
from autospec.config import SpecConfig
from autospec.measure.harness import Progress
from autospec.measurement import Measurement
from autospec.tune.seen import seen_of
from autospec.tuning.arm import Arms
from autospec.tuning.prepare import Prepared, prepare
from autospec.tuning.request import TuneRequest

#: Most by which one launch may differ from separate ones.
MOST: Final = 0.03
#: Two-sided 90 % quantiles of Student's t by degrees of freedom.
_T: Final = {1: 6.31, 2: 2.92, 3: 2.35, 4: 2.13, 5: 2.02, 6: 1.94, 7: 1.89}


class Quiet:
    """Says only what is worth a line."""

    def phase(self, text: str) -> None:
        """Say nothing."""

    def pass_done(self, progress: Progress) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say it."""
        print(text, flush=True)


@dataclass(frozen=True, slots=True)
class Round:
    """One way of one round.

    Attributes:
        figures: (depth, load, name) -> its value; load 0 for what has none.
        launches: servers started.
        seconds: all in all.
    """

    figures: dict[tuple[int, int, str], float]
    launches: int
    seconds: float


def figures(measured: Measurement) -> dict[tuple[int, int, str], float]:
    """What a measurement of one depth shows."""
    seen, depth = seen_of(measured), measured.config.num_steps or 0
    found: dict[tuple[int, int, str], float] = {(depth, 0, "length"): seen.accept_length or 0.0}
    for load in seen.loads:
        found[depth, load.load, "tok/s"] = load.throughput
        if load.step_time_ms is not None:
            found[depth, load.load, "step ms"] = load.step_time_ms
    return found


def make_round(prepared: Prepared, folder: Path, chain: list[SpecConfig], *, sweep: bool) -> Round:
    """Measure every depth once, one way."""
    request = dataclasses.replace(prepared.request, depth_sweep=sweep)
    arms = Arms(dataclasses.replace(prepared, request=request), folder, Quiet())
    began, launches = time.monotonic(), 0
    found: dict[tuple[int, int, str], float] = {}
    try:
        for config in chain:
            measured = arms.measure(config)
            if sweep and measured.launched is None:
                raise SystemExit(f"{config.label} was not measured in the shared launch")
            launches += measured.launch_s > 0
            found |= figures(measured)
    finally:
        arms.close()
    return Round(found, launches, time.monotonic() - began)


def interval(logs: list[float]) -> str:
    """Geometric mean with its 90 % interval, where there are rounds enough for one."""
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return f"{math.exp(mean):.3f} (one round)"
    half = _T.get(len(logs) - 1, 1.7) * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(mean):.3f} ({math.exp(mean - half):.3f} to {math.exp(mean + half):.3f})"


def excludes(logs: list[float]) -> bool:
    """Whether the mean differs by more than is allowed, whatever the noise of the rounds."""
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return False
    half = _T.get(len(logs) - 1, 1.7) * statistics.stdev(logs) / math.sqrt(len(logs))
    return mean - half > math.log1p(MOST) or mean + half < math.log1p(-MOST)


def show(shared: list[Round], apart: list[Round]) -> int:
    """Print the table; the exit code."""
    code = 0
    print("\ndepth load figure   separate   one launch   ratio (90 % interval)   separate's spread")
    for key in sorted(shared[0].figures):
        ours = [item.figures[key] for item in shared]
        theirs = [item.figures[key] for item in apart]
        logs = [math.log(a / b) for a, b in zip(ours, theirs, strict=True)]
        depth, load, name = key
        spread = max(theirs) / min(theirs) - 1
        print(
            f"{depth:5d} {load or '-':>4} {name:8} {statistics.median(theirs):9.2f} "
            f"{statistics.median(ours):12.2f}   {interval(logs):22}  {spread:.1%}"
        )
        code |= excludes(logs)
    for name, rounds in (("separate", apart), ("one launch", shared)):
        seconds = statistics.fmean(item.seconds for item in rounds)
        print(f"{name:10}: {rounds[0].launches} launches and {seconds:.0f} s a round", flush=True)
    return code


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depths", default="1,2,3", help="of the chain")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--concurrency", default="1,4")
    parser.add_argument("--requests", type=int, default=8, help="a pass")
    parser.add_argument("--tokens", type=int, default=64, help="an answer")
    parser.add_argument("--dtype", default="bfloat16")
    asked = parser.parse_args()
    draft = demo.draft_path()
    if draft is None:
        raise SystemExit("the demo's drafter is not here: run this from a checkout")
    request = TuneRequest(
        model=str(demo.model_path()),
        prompts=str(demo.prompts_path()),
        drafts=(("STANDALONE", str(draft)),),
        algorithms=("STANDALONE",),
        space=f"steps={asked.depths} topk=1 tokens=8",
        concurrencies=tuple(int(level) for level in asked.concurrency.split(",")),
        requests_per_pass=asked.requests,
        max_new_tokens=asked.tokens,
        device="cpu",
        dtype=asked.dtype,
        mem_fraction_static=0.2,
    )
    prepared = prepare(request, Quiet().note)
    chain = sorted(prepared.candidates)
    rounds: dict[bool, list[Round]] = {True: [], False: []}
    code = 0
    with tempfile.TemporaryDirectory() as name:
        for number in range(asked.rounds):
            turned = number % 2 == 1
            for sweep in (turned, not turned):
                made = make_round(
                    prepared, Path(name), chain[::-1] if turned else chain, sweep=sweep
                )
                rounds[sweep].append(made)
                way = "one launch" if sweep else "separate"
                print(f"round {number + 1} {way:10} {made.seconds:.0f} s", flush=True)
            code = show(rounds[True], rounds[False])
    return code


if __name__ == "__main__":
    sys.exit(main())
