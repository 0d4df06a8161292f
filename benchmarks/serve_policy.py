"""What the policy inside the server is worth, on the real engine on the CPU with the demo model.

One workload in three phases, prompts that are easy to draft for, hard ones, easy ones again, goes
to three servers: plain decoding, static speculation, and ``autospec serve``'s. Its profile has step
times of the first two and, of a draft model, of shorter chains. Once with NGRAM and once with
STANDALONE and the demo's drafter. All three run at once, but two of them are always suspended: they
take turns of a few seconds, and only the time in which a server is awake counts, so that a machine
that slows down slows all of them. A round is three new launches.

Exit code 1 if a figure misses what was promised.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from steered import (
    CLASSES,
    PHASES,
    SETTLE_S,
    calibrate,
    closed_loop,
    config_of,
    easy_requests,
    hard_requests,
    profile_of,
    say,
    serving,
    shorter_than,
)
from turns import asleep, awake, in_turns

from autospec import schema
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


@dataclass(frozen=True, slots=True)
class Made:
    """What one arm made of one phase.

    Attributes:
        tokens: of all answers.
        seconds: that it was awake for them.
        steps: decode steps.
    """

    tokens: int
    seconds: float
    steps: int

    @property
    def rate(self) -> float:
        """Tokens/s."""
        return self.tokens / self.seconds

    def __str__(self) -> str:
        return f"{self.rate:6.1f} ({self.steps} steps)"


@dataclass(slots=True)
class Round:
    """What three launches showed.

    Attributes:
        made: phase -> arm -> what it made of it.
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


def one_round(method: str, options: argparse.Namespace, folder: Path) -> Round:
    """Three launches, calibrated and taken through all phases."""
    config, easy = config_of(method), CLASSES[method][0]
    servers: dict[str, ServerProcess] = {}
    rows: list[StepTime] = []
    for shorter in shorter_than(config):
        with serving(shorter, {}, folder / f"{method}-shorter.log", options.dtype) as server:
            rows += asyncio.run(calibrate(server.url, shorter, easy))
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
        return asyncio.run(go_through(servers, rows, method, options))


async def go_through(
    servers: Mapping[str, ServerProcess],
    rows: Sequence[StepTime],
    method: str,
    options: argparse.Namespace,
) -> Round:
    """All phases, the arms in turns."""
    found = Round({}, rows)
    for server in servers.values():
        # Two have seen the easy prompts, and NGRAM remembers.
        with awake(server):
            async with EngineClient(server.url) as client:
                await client.flush()
    with awake(servers["plain"]):
        phases = await phases_of(servers["plain"].url, method, options)
    words: dict[str, list[PluginStatus]] = {}
    for phase, requests in zip(PHASES, phases, strict=True):
        found.made[phase], words[phase] = await one_phase(servers, requests, options.concurrency)
        shown = "  ".join(f"{arm} {made}" for arm, made in found.made[phase].items())
        say(f"  {method:<10} {phase:<10} tokens/s: {shown}; {words[phase][-1].counters}")
    first, second, last = words.values()
    if not last[-1].active:
        raise SystemExit(f"the policy was not at work: {last[-1].reason}")
    found.collapse = reaction(first[-1].steps, second, off=True)
    found.back = reaction(second[-1].steps, last, off=False)
    found.decision_us = last[-1].decision_us or 0.0
    return found


async def one_phase(
    servers: Mapping[str, ServerProcess], requests: Sequence[Request], width: int
) -> tuple[dict[str, Made], list[PluginStatus]]:
    """One phase of all arms, and what the plugin said of itself after each of its requests."""
    path = status_path(servers["autospec"].port)
    said: list[PluginStatus] = []
    tokens: dict[str, int] = {}

    async def work(arm: str) -> None:
        async with EngineClient(servers[arm].url) as client:
            look = (lambda: said.append(read_status(path))) if arm == "autospec" else None
            tokens[arm] = await closed_loop(client, requests, width, look)

    before = await steps_of(servers)
    seconds = await in_turns(servers, {arm: functools.partial(work, arm) for arm in ARMS})
    after = await steps_of(servers)
    said.append(read_status(path))
    steps = {arm: after[arm] - before[arm] for arm in ARMS}
    return {arm: Made(tokens[arm], seconds[arm], steps[arm]) for arm in ARMS}, said


async def steps_of(servers: Mapping[str, ServerProcess]) -> dict[str, int]:
    """Decode steps that each server counts once it is idle."""
    found: dict[str, int] = {}
    for arm, server in servers.items():
        with awake(server):
            await asyncio.sleep(SETTLE_S)
            async with EngineClient(server.url) as client:
                moments = await client.decode_moments()
        if moments is None:
            raise SystemExit(f"{arm} counts no decode steps")
        found[arm] = int(moments.num_steps)
    return found


async def phases_of(
    url: str, method: str, options: argparse.Namespace
) -> tuple[list[Request], ...]:
    """The requests of each phase.

    Easy prompts come again and again, in the last phase those of the first. Hard ones come once and
    have short answers: NGRAM remembers what it has seen, and long answers of a small model repeat
    themselves.
    """
    async with EngineClient(url) as client:
        easy = await easy_requests(client, method, options.tokens)
        hard = await hard_requests(client, method, options.hard_tokens)
    if len(hard) < options.hard_requests:
        raise SystemExit(f"--hard-requests {options.hard_requests}: there are {len(hard)}")
    again = list(itertools.islice(itertools.cycle(easy), options.requests))
    return again, hard[: options.hard_requests], again


def reaction(begin: int, words: Sequence[PluginStatus], *, off: bool) -> int | None:
    """Steps from the beginning of a phase to the first settled change off, or on; None if none."""
    # A status shows the latest decisions only, so many are looked at.
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
        made = {arm: [one.made[phase][arm] for one in rounds] for arm in ARMS}
        means = {arm: statistics.harmonic_mean(m.rate for m in made[arm]) for arm in ARMS}
        better = "plain" if means["plain"] >= means["static"] else "static"
        ratio = means["autospec"] / means[better]
        pairs = zip(made["autospec"], made[better], strict=True)
        each = " ".join(f"{mine.rate / other.rate:.3f}" for mine, other in pairs)
        good &= ratio >= LEAST_OF_BETTER
        for arm in ARMS:
            whole[arm] += 1 / means[arm]
        say(
            f"{method:<10} {phase:<10} static / plain {means['static'] / means['plain']:.3f}  "
            f"autospec / {better} {ratio:.3f} (rounds {each})"
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
    parser.add_argument("--hard-requests", type=int, default=160, help="the other phase")
    parser.add_argument("--tokens", type=int, default=96, help="an easy answer")
    parser.add_argument("--hard-tokens", type=int, default=64, help="another")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args()
    results: dict[str, list[Round]] = {method: [] for method in options.methods}
    good: dict[str, bool] = {}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="serve-policy-") as folder:
        for method in options.methods * options.rounds:
            results[method].append(one_round(method, options, Path(folder)))
            good[method] = verdict(method, results[method])
            if options.json is not None:
                found = {method: figures(rounds) for method, rounds in results.items()}
                schema.write_text(options.json, json.dumps(found, indent=2) + "\n")
    say(f"{(time.monotonic() - began) / 60:.0f} minutes in all")
    return 0 if all(good.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
