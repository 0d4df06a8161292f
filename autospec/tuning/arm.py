"""One arm: launch a server with one configuration, make all passes, stop it."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from autospec.config import SpecConfig
from autospec.engine.args import RESOLVED_KEYS, adjusted, server_args
from autospec.engine.client import EngineClient
from autospec.engine.server import ServerProcess
from autospec.errors import (
    EngineError,
    EngineMissingError,
    MeasureError,
    PortTakenError,
    StorageError,
)
from autospec.measure.checks import pass_warnings
from autospec.measure.harness import Harness, PassPlan, Progress, Until
from autospec.measurement import Measurement, Run
from autospec.tuning.answers import Ask
from autospec.tuning.chain import Chains, ChainServer
from autospec.tuning.prepare import Prepared

__all__ = ["Arms", "PassListener", "check_dying"]

#: What is done with a running server, and the passes that came of it.
_Work = Callable[[Harness, EngineClient], Awaitable[tuple[Run, ...]]]
#: SGLang answers nobody any more, but goes on for some seconds with diagnostics before it dies.
_DYING_S = 8.0


class PassListener(Protocol):
    """Told what an arm is doing, for a progress bar."""

    def phase(self, text: str) -> None:
        """Something that takes a while begins."""
        ...

    def pass_done(self, progress: Progress) -> None:
        """A pass has ended."""
        ...

    def note(self, text: str) -> None:
        """Something worth a line."""
        ...


class Arms:
    """Measures configurations, one server at a time; ``close`` it.

    In the search, a chain whose depths the plugin can switch is launched once, at its greatest
    depth, and its server stays until something else is launched. If anything is wrong with it, its
    figures are dropped and each depth is launched by itself.

    Args:
        prepared: the request.
        folder: the study's; each launch leaves its log in ``logs`` there.
        listener: told of launches and passes.
        deadline_s: when the budget ends, on ``time.monotonic``; a launch that hangs is given up
            then, though never before it had twice the time that a launch is expected to take.

    Attributes:
        spared_s: launches that trials on a running server did without, in s.
    """

    def __init__(
        self,
        prepared: Prepared,
        folder: Path,
        listener: PassListener,
        *,
        deadline_s: float = math.inf,
    ) -> None:
        self._prepared = prepared
        self._folder = folder
        self._logs = folder / "logs"
        self._listener = listener
        self._deadline_s = deadline_s
        request = prepared.request
        sweeps = request.depth_sweep and request.tp_size == 1
        self._chains = Chains(prepared.candidates if sweeps else ())
        self._chain: ChainServer | None = None
        self.spared_s = 0.0

    def measure(
        self,
        config: SpecConfig,
        part: str = "tune",
        *,
        first_repeat: int = 0,
        repeats: int | None = None,
        ask: Ask | None = None,
        asked: str = "confirm",
        until: Until | None = None,
    ) -> Measurement:
        """Launch, make the passes, stop.

        Args:
            config: what to launch.
            part: whose prompts are sent.
            first_repeat: number of the first pass at each load.
            repeats: passes at each load; the request's by default.
            ask: what else the server is asked after its passes.
            asked: the part whose prompts that takes: of ``confirm`` as many as the request says,
                of another one all.
            until: asked after each repeat whether the passes so far are enough.

        Raises:
            EngineError: the server did not start, died, or answered nonsense.
            MeasureError: the passes yielded nothing that can be trusted.
        """

        async def work(harness: Harness, client: EngineClient) -> tuple[Run, ...]:
            runs = await harness.measure(part)
            if ask is not None:
                await self._ask(ask, asked, harness, client)
            return runs

        plan = dataclasses.replace(self._plan(first_repeat, repeats), until=until)
        measured = None
        if part == "tune" and ask is None:
            measured = self._at_depth(config, plan, work)
        if measured is None:
            measured = self._launch(config, plan, work)
        if until is None or len(measured.runs) == len(plan.passes()):
            return measured
        return dataclasses.replace(measured, stopped=until(measured.runs))

    def running(self, config: SpecConfig) -> bool:
        """Whether the next trial of the search can be of this configuration without a launch."""
        return self._chain is not None and self._chain.runs(config)

    def close(self) -> None:
        """Stop the server that stayed, if one did."""
        chain, self._chain = self._chain, None
        if chain is not None:
            chain.stop()

    def answer(self, config: SpecConfig, ask: Ask, asked: str = "confirm") -> Measurement:
        """Launch, ask, stop: a measurement without a pass; it raises what ``measure`` does."""

        async def work(harness: Harness, client: EngineClient) -> tuple[Run, ...]:
            await self._ask(ask, asked, harness, client)
            return ()

        return self._launch(config, self._plan(), work)

    async def _ask(self, ask: Ask, part: str, harness: Harness, client: EngineClient) -> None:
        held_out = part == "confirm"
        self._listener.phase("comparing greedy answers" if held_out else "collecting answers")
        count = self._prepared.request.lossless_prompts if held_out else None
        await ask(client, await harness.requests(part, count))

    def _plan(self, first_repeat: int = 0, repeats: int | None = None) -> PassPlan:
        request = self._prepared.request
        return PassPlan(
            request.concurrencies,
            repeats or request.repeats,
            first_repeat=first_repeat,
            requests_per_pass=request.requests_per_pass,
            progress=self._listener.pass_done,
        )

    def _launch(self, config: SpecConfig, plan: PassPlan, work: _Work) -> Measurement:
        self.close()
        begin_s = time.monotonic()
        self._listener.phase("launching")
        with self._server(config) as server:
            self._listener.phase(f"ready after {server.launch_s or 0:.0f} s, measuring")
            runs, resolved = self._passes(server, plan, work)
        return self._measured(config, runs, resolved, server.launch_s or 0.0, begin_s)

    def _at_depth(self, config: SpecConfig, plan: PassPlan, work: _Work) -> Measurement | None:
        """Measure on the chain's server; None where there can be none, or it was of no use."""
        depths = self._chains.depths(config)
        if not depths:
            return None
        begin_s, depth = time.monotonic(), config.num_steps or 0
        try:
            chain, launch_s = self._chain_for(config, depths)
            chain.order(depth)
            self._listener.phase(f"depth {depth} of {chain.config.label}, measuring")
            runs, resolved = self._passes(chain.server, plan, work)
            chain.require_ran(depth)
        except (EngineMissingError, PortTakenError):
            self.close()
            raise
        except EngineError as error:
            self.close()
            self._chains.give_up(config)
            self._listener.note(f"    depths are launched one by one: {error}")
            return None
        except BaseException:
            self.close()
            raise
        if not launch_s:
            self.spared_s += chain.server.launch_s or 0.0
        return self._measured(config, runs, resolved, launch_s, begin_s, launched=chain.config)

    def _chain_for(self, config: SpecConfig, depths: tuple[int, ...]) -> tuple[ChainServer, float]:
        """The server of this chain, and the time that starting it took if it was not running."""
        if self._chain is not None and self._chain.runs(config):
            return self._chain, 0.0
        self.close()
        self._listener.phase("launching")
        self._chain = chain = ChainServer(config, depths, self._folder)
        chain.start(self._server(chain.config, chain.environment))
        return chain, chain.server.launch_s or 0.0

    def _server(self, config: SpecConfig, more: Mapping[str, str] | None = None) -> ServerProcess:
        return ServerProcess(
            server_args(self._prepared.deployment, config),
            environment={**self._prepared.server_environment, **(more or {})},
            log_path=self._new_log(config),
            timeout_s=self._launch_timeout_s(),
        )

    def _measured(
        self,
        config: SpecConfig,
        runs: tuple[Run, ...],
        resolved: Mapping[str, Any],
        launch_s: float,
        begin_s: float,
        *,
        launched: SpecConfig | None = None,
    ) -> Measurement:
        changed = adjusted(server_args(self._prepared.deployment, launched or config), resolved)
        for line in changed:
            self._listener.note(f"    the server changed {line}")
        over_passes = pass_warnings(runs)
        for line in over_passes:
            self._listener.note(f"    warning: {line}")
        return Measurement(
            config=config,
            runs=runs,
            launch_s=launch_s,
            launched=launched,
            duration_s=time.monotonic() - begin_s,
            resolved={key: resolved[key] for key in RESOLVED_KEYS if key in resolved},
            adjusted=changed,
            warnings=tuple(
                dict.fromkeys((*(line for run in runs for line in run.warnings), *over_passes))
            ),
        )

    def _passes(
        self, server: ServerProcess, plan: PassPlan, work: _Work
    ) -> tuple[tuple[Run, ...], dict[str, Any]]:
        try:
            return asyncio.run(self._drive(server.url, plan, work))
        except MeasureError:
            check_dying(server)
            raise

    async def _drive(
        self, url: str, plan: PassPlan, work: _Work
    ) -> tuple[tuple[Run, ...], dict[str, Any]]:
        stall_s = self._prepared.request.stall_timeout_s
        async with EngineClient(url, stall_timeout_s=stall_s) as client:
            info = await client.server_info()
            runs = await work(Harness(client, self._prepared.parts, plan=plan), client)
        return runs, {**info.resolved, "max_total_num_tokens": info.max_total_num_tokens}

    def _launch_timeout_s(self) -> float:
        left_s = self._deadline_s - time.monotonic()
        least_s = 2 * self._prepared.cost.launch_s
        return min(self._prepared.request.launch_timeout_s, max(left_s, least_s))

    def _new_log(self, config: SpecConfig) -> Path:
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{self._logs}: cannot be written ({error.strerror})") from error
        number = len(list(self._logs.iterdir())) + 1
        name = re.sub(r"[^A-Za-z0-9=]+", "-", config.label).strip("-")
        return self._logs / f"{number:03d}-{name}.log"


def check_dying(server: ServerProcess) -> None:
    """Raise ServerDiedError if requests failed because the server is going away."""
    deadline = time.monotonic() + _DYING_S
    while time.monotonic() < deadline:
        server.check()
        time.sleep(0.2)
