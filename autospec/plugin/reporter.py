"""Tells the outside what the plugin does: the status file, the server's metrics, its log.

All of it happens in a thread of its own, once a second, so that no step waits for a file. In a
tuning server the same thread looks for orders, and answers each at once.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import Any, Final, Protocol

from autospec.control.status import PluginStatus, write_status
from autospec.errors import AutospecError
from autospec.plugin.asked import Asked
from autospec.plugin.plan import EngineFacts
from autospec.plugin.recorder import Recorder
from autospec.plugin.steering import Steering

__all__ = ["Metrics", "Reporter", "status_of"]

_PERIOD_S: Final = 1.0
#: Between two looks for an order.
_LOOK_S: Final = 0.05
_log = logging.getLogger(__name__)


class Metrics(Protocol):
    """Where figures go beside the file."""

    def show(self, status: PluginStatus) -> None:
        """Take the latest status."""


def status_of(
    steering: Steering, asked: Asked, engine: EngineFacts, recorder: Recorder | None
) -> PluginStatus:
    """What the plugin says of itself now."""
    plan = steering.plan
    times: dict[int, dict[int, float]] = {}
    if plan.costs is not None:
        batches = sorted(steering.depth_by_batch)
        times = {
            depth: {batch: round(plan.costs.time_ms(depth, batch), 3) for batch in batches}
            for depth in plan.depths
        }
    return PluginStatus(
        active=steering.active,
        reason=steering.reason,
        pid=os.getpid(),
        updated_s=time.time(),
        profile=None if asked.profile is None else str(asked.profile),
        policy=plan.policy or asked.policy,
        kind=plan.kind,
        algorithm=engine.algorithm,
        switching=plan.switching,
        depths=tuple(sorted(steering.depths)),
        depth=steering.depth,
        steps=steering.steps,
        counters=dict(steering.counters),
        depth_by_batch=dict(steering.depth_by_batch),
        decisions=steering.events(),
        step_time_ms=times,
        decision_us=steering.decision_us,
        trace=None if recorder is None else str(recorder.path),
        order=None if plan.ordered is None else plan.ordered.order.number,
    )


class Reporter:
    """A thread that reports until its process ends."""

    def __init__(
        self,
        steering: Steering,
        asked: Asked,
        engine: EngineFacts,
        *,
        path: Path,
        recorder: Recorder | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._of: tuple[Any, ...] = (steering, asked, engine, recorder)
        self._steering = steering
        self._path = path
        self._recorder = recorder
        self._metrics = metrics
        self._complained = False

    def start(self) -> None:
        """Report once, then on."""
        self.report()
        threading.Thread(target=self._run, name="autospec", daemon=True).start()

    def report(self) -> None:
        """Write the file, show the figures, and empty the recorder; faults are logged once."""
        try:
            if self._recorder is not None:
                self._recorder.flush()
            status = status_of(*self._of)
            write_status(self._path, status)
            if self._metrics is not None:
                self._metrics.show(status)
        except (AutospecError, RuntimeError, OSError, ValueError) as error:
            if not self._complained:
                _log.warning("autospec: cannot report: %s", error)
            self._complained = True

    def _run(self) -> None:
        while True:
            self._wait()
            self.report()

    def _wait(self) -> None:
        """Until it is time to report, or an order came."""
        ordered = self._steering.plan.ordered
        until = time.monotonic() + _PERIOD_S
        if ordered is None:
            time.sleep(_PERIOD_S)
        while ordered is not None and time.monotonic() < until:
            time.sleep(_LOOK_S)
            try:
                if ordered.look():
                    return
            except AutospecError as error:
                self._steering.fail(error)
                return
