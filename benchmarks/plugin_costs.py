"""What the plugin costs a server, on the real engine on the CPU with the demo model.

Two comparisons, judged by the servers' own step times. The servers of a comparison all run, but all
of them but one are always suspended; they take turns, in turned order, so that a machine that slows
down slows all of them:

- plain decoding by a server that could draft with STANDALONE: with SGLang's forward of the draft
  model over each new token, and without it (``Warmth``), against a server without a drafter;
- a server that records a trace, against the same one that does not; beside it the time that the
  plugin counts for itself, and that of writing the file.

Exit code 1 if recording costs more than was promised.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from steered import CLASSES, SETTLE_S, calibrate, config_of, say, serving
from turns import asleep, awake

from autospec.config import PLAIN, SpecConfig
from autospec.control.status import read_status, status_path
from autospec.plugin.recorder import Recorder

#: Most that recording may cost, as a share of the step.
MOST_RECORDING: Final = 0.02
#: The variable by which SGLang leaves the draft model out at depth 0.
SKIP: Final = "SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND"
FLUSHED_STEPS: Final = 20_000
LOADS: Final = (1, 4)
#: Step times in ms of one arm: concurrency -> a value a round.
Times = dict[int, list[float]]


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to start the server.

    Attributes:
        name: for a person.
        config: how it drafts.
        variables: its environment.
    """

    name: str
    config: SpecConfig
    variables: Mapping[str, str]


def step_times(arms: tuple[Arm, ...], label: str, rounds: int, folder: Path) -> dict[str, Times]:
    """Step times of each arm, the arms in turned order; all servers run, one is awake."""
    found: dict[str, Times] = {arm.name: {} for arm in arms}
    with contextlib.ExitStack() as stack:
        servers = {}
        for place, arm in enumerate(arms):
            log = folder / f"{place}.log"
            server = stack.enter_context(serving(arm.config, arm.variables, log, "bfloat16"))
            servers[arm.name] = stack.enter_context(asleep(server))
        for place in range(rounds):
            for arm in arms if place % 2 == 0 else reversed(arms):
                server = servers[arm.name]
                with awake(server):
                    rows = asyncio.run(calibrate(server.url, arm.config, label, LOADS))
                    time.sleep(SETTLE_S)
                for row in rows:
                    found[arm.name].setdefault(row.concurrency, []).append(row.step_time_ms)
                shown = "  ".join(f"{row.step_time_ms:6.1f}@{row.batch_size:.1f}" for row in rows)
                status = status_path(server.port)
                own = read_status(status).decision_us if status.is_file() else None
                counted = "" if own is None else f"; the plugin counts {own:.0f} us a step"
                say(f"  round {place + 1} {arm.name:<28} {shown} ms{counted}")
    return found


def compare(times: Mapping[str, Times], name: str, base: str) -> float:
    """Say what an arm's steps take against another's, round by round; the median of all."""
    every: list[float] = []
    for level, row in times[name].items():
        ratios = [mine / other for mine, other in zip(row, times[base][level], strict=True)]
        every += ratios
        spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
        say(f"{name} / {base} @{level}: {statistics.median(ratios):.3f} ({spread})")
    middle = statistics.median(every)
    say(f"{name} / {base} over all: {middle:.3f}")
    return middle


def flush_us(folder: Path) -> float:
    """Time of keeping and writing one step of eight requests, in us."""
    recorder = Recorder(folder / "flush.jsonl", algorithm="NGRAM", depth=7, topk=1)
    began = time.perf_counter()
    for step in range(FLUSHED_STEPS):
        recorder.add(float(step), [3, 0, 1, 7, 2, 0, 0, 5])
    recorder.flush()
    return 1e6 * (time.perf_counter() - began) / FLUSHED_STEPS


def main() -> int:
    """Run both comparisons."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    chain, ngram = config_of("STANDALONE"), config_of("NGRAM")
    with tempfile.TemporaryDirectory(prefix="plugin-costs-") as name:
        folder = Path(name)
        off = {"AUTOSPEC_POLICY": "off"}
        plain = (
            Arm("plain", PLAIN, {}),
            Arm("depth 0", chain, off),
            Arm("depth 0, draft model run", chain, {**off, SKIP: "0"}),
        )
        times = step_times(plain, CLASSES["STANDALONE"][1], options.rounds, folder)
        compare(times, "depth 0", "plain")
        compare(times, "depth 0, draft model run", "plain")
        recording = (
            Arm("not recording", ngram, {}),
            Arm("recording", ngram, {"AUTOSPEC_TRACE": str(folder / "trace.jsonl")}),
        )
        times = step_times(recording, CLASSES["NGRAM"][0], options.rounds, folder)
        cost = compare(times, "recording", "not recording") - 1
        written = flush_us(folder)
    least_ms = min(min(row) for row in times["not recording"].values())
    say(f"keeping and writing a step: {written:.0f} us, {written / least_ms / 1000:.3%} of a step")
    return 0 if cost <= MOST_RECORDING else 1


if __name__ == "__main__":
    sys.exit(main())
