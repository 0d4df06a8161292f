"""``autospec bench``: all figures of one server."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from autospec.bench.figures import arm_result
from autospec.bench.plan import Plan
from autospec.bench.result import BenchResult, Made, Subject
from autospec.bench.serve import BenchListener, served
from autospec.bench.session import open_session
from autospec.bench.target import Target
from autospec.measurement import Run

__all__ = ["run_bench"]


def run_bench(
    target: Target, plan: Plan, repeats: int, listener: BenchListener, command: str
) -> BenchResult:
    """Measure one server.

    Args:
        target: which.
        plan: what is sent.
        repeats: passes at each load; the loads take turns, so slow drift meets all alike.
        listener: told what happens.
        command: how the user began it.

    Raises:
        EngineError: no server, or one that cannot be measured.
        MeasureError: a pass yielded nothing that can be trusted.
        WorkloadError: a prompt that the server cannot take.
    """
    created, begin_s = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    for warning in plan.parts.workload.warnings:
        listener.note(f"warning: {warning}")
    with served(target, listener) as server, server.watched():
        subject, runs, warnings = asyncio.run(_passes(target, server.url, plan, repeats, listener))
    return BenchResult(
        arm=arm_result(
            subject,
            runs,
            plan.traffic.slo,
            warnings=warnings,
            launch_s=() if server.launch_s is None else (server.launch_s,),
        ),
        workload=plan.summary(),
        made=Made(command, created, plan.traffic.seed, round(time.monotonic() - begin_s, 1)),
        slo=plan.traffic.slo,
    )


async def _passes(
    target: Target, url: str, plan: Plan, repeats: int, listener: BenchListener
) -> tuple[Subject, list[Run], tuple[str, ...]]:
    order = [(load, repeat) for repeat in range(repeats) for load in plan.loads]
    runs: list[Run] = []
    async with open_session(target, url, plan) as session:
        for line in session.warnings:
            listener.note(f"warning: {line}")
        for line in session.subject.adjusted:
            listener.note(f"the server changed {line}")
        for load, repeat in order:
            runs.append(await session.run_pass(load, repeat))
            listener.pass_done(target.name, runs[-1], len(runs), len(order))
        return session.subject, runs, session.warnings
