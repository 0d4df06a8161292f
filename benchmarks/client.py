"""What ``autospec.Client`` costs beside the same httpx without it.

A server in a process of its own (``fast_server.py``) answers as a speculative SGLang server does.
Both clients take turns on it, request by request and run by run, with the same options of httpx;
autospec's has a plain server in reserve, and the ``throughput`` policy with step times to weigh. It
spreads its connections over small pools (``autospec.client.pools``), which httpx does not, and so
may come out ahead where many requests are in flight.

* Latency: one request at a time to a server that answers at once, whole and streamed; the median
  of the differences of neighbouring requests.
* Throughput: 64 requests at a time in one event loop. The server takes the time of a step for each
  chunk, so that 64 streams wait for it and not for the client, as streams do. Beside it, not
  promised, the worst that can be: a server that answers at once, so that the client's own time is
  all there is.

Exit code 1 if a figure that was promised is missed: at most 1 ms a request, and at least 0.97 of
the throughput at concurrency 64.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx

import autospec
from autospec.client.clients import TIMEOUT
from autospec.client.pools import LIMITS
from autospec.control.costs import Costs
from autospec.control.kinds.throughput import Throughput
from autospec.control.policy import Setting

MOST_ADDED_MS: Final = 1.0
LEAST_SHARE: Final = 0.97
CONCURRENCY: Final = 64
DEPTH: Final = 3
SERVER: Final = Path(__file__).with_name("fast_server.py")
BODIES: Final[dict[str, dict[str, Any]]] = {
    "/generate": {"input_ids": list(range(256)), "sampling_params": {"max_new_tokens": 96}},
    "/v1/chat/completions": {
        "model": "m",
        "messages": [{"role": "user", "content": "some words " * 100}],
    },
}
CASES: Final = [(path, stream) for path in BODIES for stream in (False, True)]


@contextlib.contextmanager
def serving(step_s: float) -> Iterator[str]:
    """A server; gives its address."""
    command = [sys.executable, str(SERVER), str(step_s)]
    with subprocess.Popen(  # noqa: S603  # the file beside this one
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None  # noqa: S101  # a pipe was asked for
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def policy() -> Throughput:
    """The policy that is at work in autospec's client."""
    costs = Costs({0: {1: 10.0, 64: 14.0}, DEPTH: {1: 13.0, 64: 26.0}})
    return Throughput(Setting((0, DEPTH), costs), Throughput.Parameters())


def options(url: str) -> dict[str, Any]:
    """What autospec's clients are given."""
    return {"url": url, "plain_url": url, "policy": policy(), "depth": DEPTH}


def body_of(path: str, *, stream: bool) -> dict[str, Any]:
    """A request."""
    return {**BODIES[path], "stream": stream}


def ask(client: httpx.Client, url: str, path: str, *, stream: bool) -> float:
    """One request, read as a user does; its time in s."""
    begin_s = time.perf_counter()
    if stream:
        with client.stream("POST", url, json=body_of(path, stream=True)) as response:
            for _ in response.iter_bytes():
                pass
    else:
        response = client.post(url, json=body_of(path, stream=False))
    response.raise_for_status()
    return time.perf_counter() - begin_s


async def ask_async(client: httpx.AsyncClient, url: str, path: str, *, stream: bool) -> float:
    """The same in an event loop."""
    begin_s = time.perf_counter()
    if stream:
        async with client.stream("POST", url, json=body_of(path, stream=True)) as response:
            async for _ in response.aiter_bytes():
                pass
    else:
        response = await client.post(url, json=body_of(path, stream=False))
    response.raise_for_status()
    return time.perf_counter() - begin_s


def added_ms(pairs: list[tuple[float, float]]) -> float:
    """Median of the differences, in ms."""
    return 1000 * statistics.median(ours - theirs for ours, theirs in pairs)


def latency_sync(url: str, count: int, path: str, *, stream: bool) -> float:
    """Added latency of the blocking client, in ms."""
    with (
        autospec.Client(**options(url)) as ours,
        httpx.Client(timeout=TIMEOUT, limits=LIMITS) as theirs,
    ):
        pairs = []
        for number in range(count):
            times = {}
            for client in (ours, theirs) if number % 2 else (theirs, ours):
                times[client] = ask(client, url + path, path, stream=stream)
            pairs.append((times[ours], times[theirs]))
    return added_ms(pairs[count // 10 :])


def latency_async(url: str, count: int, path: str, *, stream: bool) -> float:
    """Added latency of the asynchronous client, in ms."""

    async def run() -> float:
        async with (
            autospec.AsyncClient(**options(url)) as ours,
            httpx.AsyncClient(timeout=TIMEOUT, limits=LIMITS) as theirs,
        ):
            pairs = []
            for number in range(count):
                times = {}
                for client in (ours, theirs) if number % 2 else (theirs, ours):
                    times[client] = await ask_async(client, url + path, path, stream=stream)
                pairs.append((times[ours], times[theirs]))
        return added_ms(pairs[count // 10 :])

    return asyncio.run(run())


async def rate(
    client: httpx.AsyncClient, url: str, count: int, path: str, *, stream: bool
) -> float:
    """Requests/s of ``count`` requests, 64 at a time."""
    left = iter(range(count))

    async def worker() -> None:
        for _ in left:
            await ask_async(client, url + path, path, stream=stream)

    begin_s = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))
    return count / (time.perf_counter() - begin_s)


def share(url: str, count: int, repeats: int, path: str, *, stream: bool) -> tuple[float, float]:
    """Throughput as a share of httpx's (median over neighbouring runs), and httpx's requests/s."""

    async def run() -> tuple[float, float]:
        ratios, raw = [], []
        async with (
            autospec.AsyncClient(**options(url)) as ours,
            httpx.AsyncClient(timeout=TIMEOUT, limits=LIMITS) as theirs,
        ):
            for client in (ours, theirs):
                await rate(client, url, CONCURRENCY, path, stream=stream)
            for number in range(repeats):
                rates = {}
                for client in (ours, theirs) if number % 2 else (theirs, ours):
                    rates[client] = await rate(client, url, count, path, stream=stream)
                ratios.append(rates[ours] / rates[theirs])
                raw.append(rates[theirs])
        return statistics.median(ratios), statistics.median(raw)

    return asyncio.run(run())


def latencies(count: int) -> dict[str, float]:
    """Added latency by case, in ms."""
    found = {}
    with serving(0.0) as url:
        for name, measure in (("sync", latency_sync), ("async", latency_async)):
            for path, stream in CASES:
                how: Callable[..., float] = measure
                kind = f"{name} {path} {'streamed' if stream else 'whole'}"
                found[kind] = how(url, count, path, stream=stream)
                print(f"{kind:40} {found[kind]:+7.3f} ms a request")
    return found


def shares(step_s: float, count: int, repeats: int) -> dict[str, float]:
    """Share of the throughput by case."""
    found = {}
    with serving(step_s) as url:
        for path, stream in CASES:
            kind = f"{path} {'streamed' if stream else 'whole'}"
            found[kind], raw = share(url, count, repeats, path, stream=stream)
            print(f"{kind:40} {found[kind]:7.3f} of {raw:.0f} requests/s")
    return found


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency-requests", type=int, default=400)
    parser.add_argument("--requests", type=int, default=256, help="of one run at concurrency 64")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    print("added latency, one request at a time, a server that answers at once")
    added = latencies(given.latency_requests)
    print(f"throughput at concurrency {CONCURRENCY}, {given.step_ms:g} ms a step")
    served = shares(given.step_ms / 1000, given.requests, given.repeats)
    print(f"throughput at concurrency {CONCURRENCY}, a server that answers at once: not promised")
    worst = shares(0.0, given.requests, given.repeats)
    if given.json:
        figures = {"added_ms": added, "share": served, "share_of_idle_server": worst}
        given.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    slow = [kind for kind, ms in added.items() if ms > MOST_ADDED_MS]
    low = [kind for kind, ratio in served.items() if ratio < LEAST_SHARE]
    for kind in slow:
        print(f"missed: {kind} adds {added[kind]:.3f} ms, at most {MOST_ADDED_MS} were promised")
    for kind in low:
        print(f"missed: {kind} makes {served[kind]:.3f}, at least {LEAST_SHARE} were promised")
    return 1 if slow or low else 0


if __name__ == "__main__":
    sys.exit(main())
