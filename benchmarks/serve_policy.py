"""What the policy inside the server is worth, on the real engine on the CPU with the demo model.

One workload in three phases, prompts that are easy to draft for, hard ones, easy ones again, goes
to three servers: plain decoding, static speculation, and ``autospec serve``'s, whose step times
were measured on the first two. Once with NGRAM and once with STANDALONE and the demo's drafter. All
three run at once, but two of them are always suspended; the phases come in parts, and for each part
the servers take turns in turned order, so that a machine that slows down slows all of them. A round
is three new launches.

Exit code 1 if a figure misses what was promised.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import operator
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from steered import (
    CLASSES,
    PHASES,
    SETTLE_S,
    calibrate,
    closed_loop,
    config_of,
    profile_of,
    requests_of,
    say,
    serving,
)
from turns import asleep, awake

from autospec.config import PLAIN
from autospec.control.status import PluginStatus, read_status, status_path
from autospec.engine.client import EngineClient
from autospec.engine.server import ServerProcess
from autospec.evidence import StepTime
from autospec.measurement import Request
from autospec.profile import save_profile

#: Least throughput over the better of the other two in a phase, and the most steps to react.
LEAST_OF_BETTER: Final = 0.97
MOST_STEPS: Final = {"collapse": 50, "return": 200}
MOST_OVERHEAD: Final = 0.01
ARMS: Final = ("plain", "static", "autospec")


@dataclass(slots=True)
class Made:
    """What one arm made of one phase.

    Attributes:
        rates: tokens/s of each part.
        steps: decode steps of each part.
        step_ms: their mean time in ms, by the server's own count.
    """

    rates: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Tokens/s over all parts, which are as long as each other."""
        return statistics.harmonic_mean(self.rates)

    def __str__(self) -> str:
        ms = sum(map(operator.mul, self.step_ms, self.steps)) / sum(self.steps)
        return f"{self.rate:6.1f} ({sum(self.steps)} steps of {ms:.1f} ms)"

    async def add(self, url: str, requests: Sequence[Request], width: int) -> None:
        """Serve a part."""
        async with EngineClient(url) as client:
            before = await client.decode_moments()
            self.rates.append(await closed_loop(client, requests, width))
            await asyncio.sleep(SETTLE_S)
            after = await client.decode_moments()
        if before is None or after is None:
            raise SystemExit("the server counts no decode steps")
        self.steps.append(int(after.num_steps - before.num_steps))
        self.step_ms.append((after.sum_step_us - before.sum_step_us) / self.steps[-1] / 1000)


@dataclass(slots=True)
class Round:
    """What three launches showed.

    Attributes:
        made: phase -> arm -> rates.
        step_times: as measured on the first two.
        collapse: decode steps from the second phase's begin to plain decoding; None if never.
        back: the same from the third phase's begin to speculation.
        decision_us: the plugin's own time a step.
    """

    made: dict[str, dict[str, Made]]
    step_times: Sequence[StepTime]
    collapse: int | None = None
    back: int | None = None
    decision_us: float = 0.0


def one_round(method: str, options: argparse.Namespace, folder: Path, *, turned: bool) -> Round:
    """Three launches, calibrated and taken through all phases."""
    config, easy = config_of(method), CLASSES[method][0]
    servers: dict[str, ServerProcess] = {}
    rows: list[StepTime] = []
    with contextlib.ExitStack() as stack:
        for arm in ARMS:
            runs, variables = (PLAIN if arm == "plain" else config), {}
            if arm == "autospec":
                path = folder / f"{method}.yaml"
                save_profile(path, profile_of(config, rows, options.dtype))
                variables = {"AUTOSPEC_PROFILE": str(path)}
            log = folder / f"{method}-{arm}.log"
            server = stack.enter_context(serving(runs, variables, log, options.dtype))
            servers[arm] = server
            if arm != "autospec":
                rows += asyncio.run(calibrate(server.url, runs, easy))
            stack.enter_context(asleep(server))
        return asyncio.run(go_through(servers, rows, method, options, turned=turned))


async def go_through(
    servers: Mapping[str, ServerProcess],
    rows: Sequence[StepTime],
    method: str,
    options: argparse.Namespace,
    *,
    turned: bool,
) -> Round:
    """All phases, part by part, the arms in turn."""
    found = Round({phase: {arm: Made() for arm in ARMS} for phase in PHASES}, rows)
    port = servers["autospec"].port
    words: dict[str, list[PluginStatus]] = {phase: [] for phase in PHASES}
    with awake(servers["plain"]):
        parts = await parts_of(servers["plain"].url, method, options)
    for phase, pieces in zip(PHASES, parts, strict=True):
        for place, piece in enumerate(pieces):
            for arm in ARMS if (place % 2 == 0) != turned else reversed(ARMS):
                with awake(servers[arm]):
                    await found.made[phase][arm].add(servers[arm].url, piece, options.concurrency)
                    if arm == "autospec":
                        words[phase].append(read_status(status_path(port)))
        shown = "  ".join(f"{arm} {found.made[phase][arm]}" for arm in ARMS)
        say(f"  {method:<10} {phase:<10} tokens/s: {shown}; {words[phase][-1].counters}")
    first, second, last = words.values()
    if not last[-1].active:
        raise SystemExit(f"the policy was not at work: {last[-1].reason}")
    found.collapse = reaction(first[-1].steps, second, off=True)
    found.back = reaction(second[-1].steps, last, off=False)
    found.decision_us = last[-1].decision_us or 0.0
    return found


async def parts_of(
    url: str, method: str, options: argparse.Namespace
) -> tuple[list[list[Request]], ...]:
    """The requests of each phase, in parts of equal length.

    Easy prompts come again and again. Hard ones come once: NGRAM remembers what it has seen.
    """
    labels = CLASSES[method]
    async with EngineClient(url) as client:
        easy = await requests_of(client, labels[0], options.tokens)
        hard = await requests_of(client, labels[1], options.hard_tokens)
    half, found = len(easy) // 2, []
    count: int = options.requests

    def filled(part: list[Request]) -> list[Request]:
        return (part * (1 + count // len(part)))[:count]

    for wanted in (filled(easy[:half]), hard[: options.hard_requests], filled(easy[half:])):
        step = len(wanted) // options.parts
        found.append([wanted[place * step :][:step] for place in range(options.parts)])
    return tuple(found)


def reaction(begin: int, words: Sequence[PluginStatus], *, off: bool) -> int | None:
    """Steps from the beginning of a phase to the first settled change off, or on; None if none."""
    # A status shows the latest decisions only, so each part's is looked at.
    steps = [
        event.step
        for word in words
        for event in word.decisions
        if event.want == "settle" and (event.depth == 0) is off and event.step >= begin
    ]
    return min(steps) - begin if steps else None


def verdict(method: str, rounds: Sequence[Round]) -> bool:
    """Say how a method did, and whether it is as promised."""
    good = True
    whole = dict.fromkeys(ARMS, 0.0)
    for phase in PHASES:
        rates = {
            arm: [rate for one in rounds for rate in one.made[phase][arm].rates] for arm in ARMS
        }
        means = {arm: statistics.harmonic_mean(rates[arm]) for arm in ARMS}
        better = "plain" if means["plain"] >= means["static"] else "static"
        ratio = means["autospec"] / means[better]
        pairs = sorted(a / b for a, b in zip(rates["autospec"], rates[better], strict=True))
        good &= ratio >= LEAST_OF_BETTER
        for arm in ARMS:
            whole[arm] += 1 / means[arm]
        say(
            f"{method:<10} {phase:<10} static / plain {means['static'] / means['plain']:.3f}  "
            f"autospec / {better} {ratio:.3f} (parts {pairs[0]:.3f} to {pairs[-1]:.3f})"
        )
    over = {arm: whole[arm] / whole["autospec"] for arm in ("plain", "static")}
    good &= min(over.values()) >= 1
    steps = {"collapse": [r.collapse for r in rounds], "return": [r.back for r in rounds]}
    for name, most in MOST_STEPS.items():
        good &= all(count is not None and count <= most for count in steps[name])
    plain_ms = min(row.step_time_ms for r in rounds for row in r.step_times if row.config.is_plain)
    share = max(r.decision_us for r in rounds) / 1000 / plain_ms
    good &= share <= MOST_OVERHEAD
    say(
        f"{method:<10} whole run: {over['plain']:.3f}x plain, {over['static']:.3f}x static; steps "
        f"to plain {steps['collapse']}, back {steps['return']}; the plugin takes {share:.2%} of a "
        f"plain step: {'ok' if good else 'MISSED'}"
    )
    return bool(good)


def figures(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """All that was measured, for a file."""
    return [
        {
            "made": {p: {arm: asdict(m) for arm, m in made.items()} for p, made in r.made.items()},
            "step_times": [(str(x.config), x.batch_size, x.step_time_ms) for x in r.step_times],
            "collapse": r.collapse,
            "return": r.back,
            "decision_us": r.decision_us,
        }
        for r in rounds
    ]


def main() -> int:
    """Run all rounds of all methods."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--methods", nargs="+", default=list(CLASSES), choices=list(CLASSES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--requests", type=int, default=120, help="an easy phase")
    parser.add_argument("--hard-requests", type=int, default=120, help="of the other, at most")
    parser.add_argument("--parts", type=int, default=3, help="of a phase")
    parser.add_argument("--tokens", type=int, default=96, help="an easy answer")
    parser.add_argument("--hard-tokens", type=int, default=160, help="another")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args()
    results: dict[str, list[Round]] = {}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="serve-policy-") as folder:
        for method in options.methods:
            results[method] = [
                one_round(method, options, Path(folder), turned=place % 2 == 1)
                for place in range(options.rounds)
            ]
    good = [verdict(method, rounds) for method, rounds in results.items()]
    say(f"{(time.monotonic() - began) / 60:.0f} minutes in all")
    if options.json is not None:
        text = json.dumps({method: figures(rounds) for method, rounds in results.items()}, indent=2)
        options.json.write_text(text + "\n", encoding="utf-8")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
