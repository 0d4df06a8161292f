"""Whether a server outlives forced random switching, on the real engine on the CPU.

Plain decoding answers every demo prompt once. Then a server that drafts, and whose policy draws
another depth every few steps, answers thousands of requests. In float32 each answer must be plain
decoding's, token by token; memory must stay flat, no request may fail or hang, and the server must
still be there and idle at the end.

Exit code 1 if any of that is missed. Run it from the repository's root.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from steered import config_of, say, serving

from autospec import demo
from autospec.config import PLAIN
from autospec.control.status import read_status, status_path
from autospec.engine.client import EngineClient
from autospec.engine.server import ServerProcess
from autospec.measurement import Request

POLICY: Final = "schema: 1\nkind: tests.plugin.forced:Forced\nparameters: {every: 4}\n"
#: Growth of memory from the second quarter of the run to its last one that counts as none.
MOST_GROWTH: Final = 0.02
#: No request of these sizes takes so long, in s, unless it hangs.
TIMEOUT_S: Final = 120.0
Answers = dict[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What many requests showed.

    Attributes:
        requests: answered.
        different: answers that are not plain decoding's.
        memory_mb: of all of the server's processes, one value every few requests.
        unfinished: requests that the server still had when all were answered.
    """

    requests: int
    different: int
    memory_mb: tuple[float, ...]
    unfinished: int

    @property
    def growth(self) -> float:
        """Memory of the last quarter over the second one, minus 1."""
        quarter = len(self.memory_mb) // 4
        before = statistics.median(self.memory_mb[quarter : 2 * quarter])
        return statistics.median(self.memory_mb[-quarter:]) / before - 1


async def read_requests(client: EngineClient, tokens: int) -> list[Request]:
    """Every demo prompt."""
    lines = demo.prompts_path().read_text(encoding="utf-8").splitlines()
    prompts = [json.loads(line) for line in lines]
    return [
        Request(index, await client.tokenize(messages=prompt["messages"]), tokens)
        for index, prompt in enumerate(prompts)
    ]


async def plain_answers(url: str, tokens: int) -> Answers:
    """What plain decoding answers."""
    async with EngineClient(url, timeout_s=TIMEOUT_S) as client:
        requests = await read_requests(client, tokens)
        found: Answers = {}
        for first in range(0, len(requests), 8):
            some = requests[first : first + 8]
            answers = await asyncio.gather(*(client.answer(request) for request in some))
            found.update({r.prompt: ids for r, ids in zip(some, answers, strict=True)})
    return found


async def soak(
    server: ServerProcess, plain: Mapping[int, tuple[int, ...]], options: argparse.Namespace
) -> Outcome:
    """Send the requests, so many in flight, and watch."""
    async with EngineClient(server.url, timeout_s=TIMEOUT_S) as client:
        prompts = await read_requests(client, options.tokens)
        waiting = [prompts[place % len(prompts)] for place in range(options.requests)]
        different, memory = 0, [memory_mb(server.pid)]

        async def worker() -> None:
            nonlocal different
            while waiting:
                request = waiting.pop()
                different += await client.answer(request) != plain[request.prompt]
                if len(waiting) % 25 == 0:
                    memory.append(memory_mb(server.pid))

        await asyncio.gather(*(worker() for _ in range(options.concurrency)))
        await asyncio.sleep(2.0)
        loads = await client.loads()
    return Outcome(options.requests, different, tuple(memory), loads.running + loads.waiting)


def memory_mb(pid: int) -> float:
    """Resident memory of a process and its children, in MB."""
    server = psutil.Process(pid)
    family = [server, *server.children(recursive=True)]
    return sum(process.memory_info().rss for process in family) / 1e6


def one_method(
    method: str, plain: Mapping[int, tuple[int, ...]], folder: Path, options: argparse.Namespace
) -> bool:
    """Soak one server, and say what it showed."""
    policy = folder / "forced.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    variables = {"AUTOSPEC_POLICY": str(policy)}
    began = time.monotonic()
    with serving(config_of(method), variables, folder / f"{method}.log", "float32") as server:
        outcome = asyncio.run(soak(server, plain, options))
        status = read_status(status_path(server.port))
        alive = server.alive()
    good = (
        alive
        and status.active
        and not outcome.different
        and not outcome.unfinished
        and outcome.growth <= MOST_GROWTH
        and status.counters["errors"] == 0
    )
    counters = status.counters
    say(
        f"{method}: {outcome.requests} requests in {time.monotonic() - began:.0f} s, "
        f"{outcome.different} answers differ from plain decoding's; {status.steps} steps, "
        f"{counters['switches']} switches, {counters['fallbacks']} to plain and "
        f"{counters['recoveries']} back, depths {list(status.depths)}; memory "
        f"{outcome.memory_mb[0]:.0f} MB at first, {outcome.memory_mb[-1]:.0f} MB at last, "
        f"{outcome.growth:+.2%} from the second quarter to the last: {'ok' if good else 'MISSED'}"
    )
    return good


def main(words: Sequence[str] | None = None) -> int:
    """Soak a server of each method."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=["NGRAM", "STANDALONE"])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=16, help="longest answer")
    parser.add_argument("--concurrency", type=int, default=8)
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        with serving(PLAIN, {}, Path(folder) / "plain.log", "float32") as server:
            plain = asyncio.run(plain_answers(server.url, options.tokens))
        good = [one_method(method, plain, Path(folder), options) for method in options.methods]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
