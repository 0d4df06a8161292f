"""One running server, and the passes that are made over it."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from autospec.bench.plan import PART, Plan
from autospec.bench.result import Subject
from autospec.bench.target import Launch, Target
from autospec.engine.args import RESOLVED_KEYS, adjusted, config_of
from autospec.engine.capabilities import SUPPORTED_SGLANG
from autospec.engine.client import EngineClient
from autospec.engine.wire import ModelInfo, ServerInfo
from autospec.errors import ConfigError, EngineError, RequestError, WireError
from autospec.measure.harness import Harness
from autospec.measure.load import Arrival, ClosedLoop
from autospec.measurement import Run

__all__ = ["Session", "open_session"]

_REFUSED_KEY: Final = (401, 403)
#: How long a server that someone else started may go on with what it has before a pass, in s.
_IDLE_WITHIN_S: Final = 30.0


class Session:
    """A server that is connected, checked and ready for passes.

    Attributes:
        subject: what it is.
        warnings: what makes figures of it less trustworthy.
    """

    def __init__(self, subject: Subject, harness: Harness, warnings: tuple[str, ...]) -> None:
        self.subject = subject
        self.warnings = warnings
        self._harness = harness

    async def run_pass(self, load: Arrival, repeat: int) -> Run:
        """Make one pass.

        Raises:
            WorkloadError: a prompt that this server cannot take.
            EngineError: the server refuses what a pass needs.
            MeasureError: the pass yielded nothing that can be trusted.
        """
        if isinstance(load, ClosedLoop):
            return await self._harness.run_pass(PART, load.concurrency, repeat)
        return await self._harness.run_rate_pass(PART, load.rate_per_s, repeat)


class _Client(EngineClient):
    """A client that says what to do where a server does not let itself be measured."""

    async def flush(self, timeout_s: float = _IDLE_WITHIN_S) -> None:
        """Empty the server's caches."""
        try:
            await super().flush(timeout_s)
        except RequestError as error:
            if error.status in _REFUSED_KEY:
                raise EngineError(
                    "the server does not let this key empty its caches (/flush_cache), so what "
                    "one pass leaves would speed the next; give its admin key"
                ) from error
            if error.status == 400:
                raise EngineError(
                    f"the server was still busy after {timeout_s:g} s: others use it, so no "
                    "figure would be its own; measure it when it has nothing else to do"
                ) from error
            raise


@asynccontextmanager
async def open_session(target: Target, url: str, plan: Plan) -> AsyncIterator[Session]:
    """Connect to a server and find out what it is.

    Args:
        target: what the user asked for.
        url: where it answers.
        plan: the passes that will be made.

    Raises:
        EngineError: nothing that can be measured answers there.
        WireError: it answers otherwise than the supported version of SGLang.
    """
    api_key = None if isinstance(target, Launch) else target.api_key
    stall_s = plan.traffic.stall_timeout_s
    async with _Client(url, api_key=api_key, stall_timeout_s=stall_s) as client:
        info, model = await _ask(client, url)
        subject, warnings = _subject(target, info, model), _version_warnings(info)
        yield Session(subject, Harness(client, plan.parts, plan=plan.passes), warnings)


async def _ask(client: EngineClient, url: str) -> tuple[ServerInfo, ModelInfo]:
    try:
        return await client.server_info(), await client.model_info()
    except WireError as error:
        raise WireError(f"{url}: does not answer as SGLang {SUPPORTED_SGLANG}: {error}") from error
    except RequestError as error:
        if error.status in _REFUSED_KEY:
            raise EngineError(
                f"{url}: asks for an API key; put it into the environment variable that "
                "--api-key-env names"
            ) from error
        what = "is no SGLang server" if error.status else "cannot be measured"
        raise EngineError(f"{url}: {what}: {error}") from error


def _subject(target: Target, info: ServerInfo, model: ModelInfo) -> Subject:
    reported = {
        **info.resolved,
        "max_total_num_tokens": info.max_total_num_tokens,
        "max_running_requests": info.max_running_requests,
    }
    resolved = {"version": info.version} | {
        key: reported[key] for key in RESOLVED_KEYS if key in reported
    }
    if isinstance(target, Launch):
        changed = adjusted(target.arguments, reported)
        return dataclasses.replace(target.subject, resolved=resolved, adjusted=changed)
    try:
        config = config_of(info.resolved)
    except ConfigError as error:
        raise WireError(f"{target.url}: its speculative settings make no sense: {error}") from error
    return Subject(target.name, config, model.model_path, resolved)


def _version_warnings(info: ServerInfo) -> tuple[str, ...]:
    if info.version == SUPPORTED_SGLANG:
        return ()
    line = f"the server is SGLang {info.version}, autospec knows {SUPPORTED_SGLANG}"
    return (f"{line}: counters of another version may mean something else",)
