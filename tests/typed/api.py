"""The public interface as a typed program sees it: mypy reads this, nothing runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx

import autospec
from autospec.client import Generation, RoutingDecision
from autospec.control.policy import Policy


def load_and_inspect() -> tuple[dict[str, Any], list[str]]:
    """What a program does with a profile."""
    profile: autospec.Profile = autospec.load_profile("profile.yaml")
    verdict: autospec.Verdict = profile.verdict
    ratio: autospec.Interval | None = verdict.vs_plain
    points: tuple[autospec.Point, ...] = profile.points
    environment: autospec.Environment = profile.environment
    chosen: autospec.SpecConfig = profile.choice.config
    if ratio and points and environment.device and chosen == autospec.PLAIN:
        chosen = autospec.SpecConfig.parse("NGRAM tokens=8")
    return profile.server_args(), profile.to_argv()


def route(profile: autospec.Profile) -> str:
    """What a program does with a client; both are httpx's to whoever wants those."""
    with autospec.Client("http://a", "http://b", profile=profile, policy="throughput") as client:

        @client.on_decision
        def told(decision: RoutingDecision) -> None:
            del decision

        answer: Generation = client.generate("text", sampling_params={"max_new_tokens": 8})
        parts: Iterator[Generation] = client.stream_generate(messages=[{"role": "user"}])
        length: float | None = answer.accept_length or client.counters().accept_length
        base: httpx.Client = client
        return f"{base.is_closed} {length} {list(parts)} {client.metrics()}"


async def route_async(policy: Policy) -> str | None:
    """The same in an event loop."""
    async with autospec.AsyncClient("http://a", policy=policy, depth=3) as client:
        parts: AsyncIterator[Generation] = client.stream_generate(input_ids=[1])
        base: httpx.AsyncClient = client
        return f"{base.is_closed} {[part.text async for part in parts]}"


def refuse() -> str:
    """Every error has one base, and says what to do in one line."""
    try:
        autospec.load_profile("missing.yaml")
    except autospec.InputError as error:
        return str(error)
    except autospec.AutospecError as error:
        return f"{error.exit_code}: {error}"
    return ""
