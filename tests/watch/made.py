"""Made-up readings of a server, and a profile that knows it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from autospec.config import PLAIN, SpecConfig
from autospec.control.status import PluginStatus, StatusEvent
from autospec.engine.live import Loads
from autospec.evidence import Acceptance, StepTime
from autospec.measurement import DecodeMoments
from autospec.profile import Choice, Profile, Verdict
from autospec.watch.known import Known, know
from autospec.watch.reading import Reading, Server
from tests.test_profile import make_profile

CHAIN = SpecConfig("EAGLE3", num_steps=3, topk=1, num_draft_tokens=4)
SERVER = Server("0.5.23", "models/m", CHAIN, 48, num_steps=3)
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def chain_profile(command: str = "autospec tune models/m --prompts p.jsonl -o p.yaml") -> Profile:
    """A profile of a chain, 10 ms a plain step and 15 ms a drafting one, at batch sizes 1 to 8."""
    rows = [
        StepTime(config, load, load, ms * (1 + load / 10), 100)
        for config, ms in ((PLAIN, 10.0), (CHAIN, 15.0))
        for load in (1, 8)
    ]
    arguments = {"model_path": "models/m", "speculative_algorithm": "EAGLE3"}
    base = make_profile(
        verdict=Verdict("faster", "it is", "confirm", CHAIN),
        choice=Choice(CHAIN, dict(arguments), {}),
        step_times=tuple(rows),
        acceptance=(Acceptance(CHAIN, 2.5, (0.7, 0.5, 0.3)),),
    )
    return replace(base, provenance=replace(base.provenance, command=command))


def known(profile: Profile | None = None) -> Known:
    """The profile as watching uses it."""
    return know(profile or chain_profile(), Path("p.yaml"))


class Course:
    """A server that decodes: each look is another reading of it."""

    def __init__(self, server: Server = SERVER) -> None:
        self.server = server
        self.moments: DecodeMoments | None = None
        self.time_s = 0.0

    def look(
        self,
        steps: int = 0,
        *,
        batch: int = 4,
        ms: float = 21.0,
        accept: float = 2.5,
        seconds: float = 10.0,
        status: PluginStatus | None = None,
        tokens: float | None = None,
    ) -> Reading:
        """What it shows after further steps."""
        self.time_s += seconds
        old = self.moments or DecodeMoments(0, 0.0, 0.0, 0.0, 0.0, 0.0)
        if steps:
            self.moments = DecodeMoments(
                num_steps=old.num_steps + steps,
                sum_batch_size=old.sum_batch_size + steps * batch,
                sum_step_us=old.sum_step_us + steps * ms * 1000,
                sum_batch_size_sq=old.sum_batch_size_sq + steps * batch**2,
                sum_batch_step_us=old.sum_batch_step_us + steps * batch * ms * 1000,
                sum_tokens=old.sum_tokens + round(steps * batch * accept),
            )
        loads = Loads(batch if steps else 0, 0, 123.0, self.moments)
        return Reading(self.time_s, self.server, loads, tokens, status)


def plugin(depth: int, *, steps: int = 0, reason: str = "it pays", **counters: int) -> PluginStatus:
    """What the plugin says of itself."""
    return PluginStatus(
        active=True,
        reason="it decides",
        pid=1,
        updated_s=0.0,
        depths=(0, 3),
        depth=depth,
        steps=steps,
        counters=counters,
        decisions=(StatusEvent(steps, 4, depth, reason),),
    )


def command_of(command: str) -> str:
    """How a profile with this command would be measured anew."""
    return known(chain_profile(command)).retune
