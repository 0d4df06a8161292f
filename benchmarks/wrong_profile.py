"""Whether the policy inside the server gets over a wrong profile, on the real engine on the CPU.

Step times are measured, and then three servers are started: with a profile that holds them, and
with two whose step times under speculation are half and twice as long. Each is warmed up over so
many decode steps, easy and hard prompts in turn, and then goes through three phases, easy, hard and
easy again. What it has settled on at the end of each phase must be the same on all three.

Exit code 1 if it is not.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

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
)

from autospec.config import PLAIN, SpecConfig
from autospec.control.status import PluginStatus, read_status, status_path
from autospec.engine.client import EngineClient
from autospec.evidence import StepTime
from autospec.measurement import Request
from autospec.profile import save_profile

FACTORS: Final = (1.0, 0.5, 2.0)


def measured(config: SpecConfig, label: str, dtype: str, folder: Path) -> list[StepTime]:
    """Step times of plain decoding and of a configuration."""
    rows: list[StepTime] = []
    for runs in (PLAIN, config):
        with serving(runs, {}, folder / "server.log", dtype) as server:
            rows += asyncio.run(calibrate(server.url, runs, label))
    return rows


async def choices(
    url: str, port: int, method: str, options: argparse.Namespace
) -> list[PluginStatus]:
    """The plugin's word after the warm-up and after each phase."""
    async with EngineClient(url) as client:
        easy = itertools.cycle(await easy_requests(client, method, options.tokens))
        # Hardly any comes twice: NGRAM remembers what it has seen.
        hard = itertools.cycle(await hard_requests(client, method, options.tokens))

        async def run(part: Iterator[Request]) -> PluginStatus:
            wanted = list(itertools.islice(part, options.requests))
            await closed_loop(client, wanted, options.concurrency)
            await asyncio.sleep(SETTLE_S)
            return read_status(status_path(port))

        words = [read_status(status_path(port))]
        while words[-1].steps < options.warmup_steps:
            for part in (easy, hard):
                words[0] = await run(part)
        words += [await run(part) for part in (easy, hard, easy)]
    return words


def settled(word: PluginStatus, concurrency: int) -> int | None:
    """The depth last settled on at the full batch."""
    depths = [
        event.depth
        for event in word.decisions
        if event.want == "settle" and event.batch_size == concurrency
    ]
    return depths[-1] if depths else word.depth_by_batch.get(concurrency)


def one_method(method: str, options: argparse.Namespace, folder: Path) -> bool:
    """All three profiles of one way of drafting."""
    config = config_of(method)
    rows = measured(config, CLASSES[method][0], options.dtype, folder)
    found: list[list[int | None]] = []
    for factor in FACTORS:
        wrong = [
            row if row.config.is_plain else replace(row, step_time_ms=factor * row.step_time_ms)
            for row in rows
        ]
        path = folder / f"{method}-{factor}.yaml"
        save_profile(path, profile_of(config, wrong, options.dtype))
        variables = {"AUTOSPEC_PROFILE": str(path)}
        with serving(config, variables, folder / "server.log", options.dtype) as server:
            words = asyncio.run(choices(server.url, server.port, method, options))
        found.append([settled(word, options.concurrency) for word in words[1:]])
        said = ", ".join(f"{name} {depth}" for name, depth in zip(PHASES, found[-1], strict=True))
        say(
            f"{method} step times x{factor:g}: after {words[0].steps} steps {said}; "
            f"it works with {words[-1].step_time_ms}"
        )
    same = all(depths == found[0] for depths in found)
    say(f"{method}: {'the same choices' if same else 'DIFFERENT CHOICES'}")
    return same


def main() -> int:
    """Try each method."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=list(CLASSES), choices=list(CLASSES))
    parser.add_argument("--warmup-steps", type=int, default=2000)
    parser.add_argument("--requests", type=int, default=40, help="a phase")
    parser.add_argument("--tokens", type=int, default=64, help="longest answer")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--dtype", default="bfloat16")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wrong-profile-") as folder:
        good = [one_method(method, options, Path(folder)) for method in options.methods]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
