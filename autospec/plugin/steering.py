"""Between SGLang's loop and the policy: what is shown to it, and what becomes of its answers.

Free of SGLang. Before each decode step the engine's side asks ``choose``; when a step's results are
known it calls ``learn``. Under overlap scheduling results come one step late, so steps under way
wait in a queue. Whatever goes wrong in here ends the steering and nothing else: the server goes on
at the depth it was started with.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from autospec.control.policy import Decision, Observation
from autospec.control.status import StatusEvent
from autospec.plugin.plan import Plan
from autospec.plugin.recorder import Recorder

__all__ = ["EVENTS", "Steering"]

#: Decisions that a status shows.
EVENTS: Final = 32
#: More steps are never under way at once.
_UNDER_WAY: Final = 8
#: Steps between two looks at what a depth costs that was never timed.
_LOOK_EVERY: Final = 64
#: Batch sizes whose latest depth is remembered.
_BATCHES: Final = 64

_log = logging.getLogger(__name__)


class Steering:
    """The policy at work in one worker.

    Attributes:
        plan: what was to be done.
        static_depth: the depth that the server was started with.
        depths: those that it can run now.
        failed: why nothing is steered any more; None while all is well.
        depth: of the latest step.
        counters: as ``PluginStatus.counters`` has them.
        depth_by_batch: the depth last chosen for each batch size.
    """

    def __init__(
        self,
        plan: Plan,
        static_depth: int,
        *,
        recorder: Recorder | None = None,
        overlaps: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        work_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """Put a plan to work.

        Args:
            plan: what to do.
            static_depth: the depth that the server was started with.
            recorder: takes the steps at full depth.
            overlaps: a step is launched before the one before it has ended.
            clock: seconds on a monotonic clock.
            work_clock: the same, standing still while this thread does not run.
        """
        self.plan = plan
        self.static_depth = static_depth
        self.depths = set(plan.depths)
        self.failed: str | None = None
        self.depth = static_depth
        self.depth_by_batch: dict[int, int] = {}
        self.counters = dict.fromkeys(
            (
                "plain_steps",
                "speculative_steps",
                "probe_steps",
                "shadow_drafts",
                "switches",
                "fallbacks",
                "recoveries",
                "errors",
            ),
            0,
        )
        self._recorder = recorder
        self._clock = clock
        self._work_clock = work_clock
        self._overlaps = overlaps
        self._began: float | None = None
        self._alike = False
        self._size = 0
        self._settled: int | None = None
        self._spent_s = 0.0
        self._under_way: deque[tuple[int, int]] = deque(maxlen=_UNDER_WAY)
        self._news: tuple[int, Sequence[int]] = (0, ())
        self._shadow: Sequence[int] = ()

    @property
    def active(self) -> bool:
        """Whether a policy decides."""
        return self.failed is None and self.plan.controller is not None

    @property
    def wants_shadows(self) -> bool:
        """Whether the policy learns from drafts that are not verified."""
        kind = self.plan.kind or ""
        return self.active and (kind == "throughput" or ":" in kind)

    @property
    def reason(self) -> str:
        """What is done, or why nothing is, in one sentence."""
        return self.failed or self.plan.reason

    @property
    def steps(self) -> int:
        """Decode steps so far."""
        return self.counters["plain_steps"] + self.counters["speculative_steps"]

    @property
    def decision_us(self) -> float | None:
        """Mean processor time in here of a step, before and after it, in microseconds."""
        return round(1e6 * self._spent_s / self.steps, 2) if self.steps else None

    def choose(self, batch_size: int) -> int:
        """The depth of the decode step that is about to run."""
        began, worked_s = self._clock(), self._work_clock()
        depth = self._chosen(batch_size, began) if self.active else self.static_depth
        self._alike = depth == self.depth
        self._began = began
        self._under_way.append((depth, batch_size))
        self._size = batch_size
        self.counters["speculative_steps" if depth else "plain_steps"] += 1
        self.depth = depth
        self._spent_s += self._work_clock() - worked_s
        return depth

    def learn(self, correct: Sequence[int]) -> None:
        """Take the results of the oldest step under way: correct drafts of each request."""
        if not self._under_way:
            return
        worked_s = self._work_clock()
        depth, batch_size = self._under_way.popleft()
        if len(correct) != batch_size:
            # A step whose results never came: what is under way no longer belongs together.
            self._under_way.clear()
            return
        self._news = (depth, correct if depth else ())
        if self._recorder is not None and depth == self.static_depth:
            self._recorder.add(self._clock(), list(correct))
        self._spent_s += self._work_clock() - worked_s

    def shadow(self, correct: Sequence[int], spent_s: float) -> None:
        """Take the correct drafts of shadow drafts that ended, and the work that took."""
        self._shadow = correct
        self.counters["shadow_drafts"] += len(correct)
        self._spent_s += spent_s

    def interrupted(self) -> None:
        """Note that something else ran, a prefill: what was timed across it counts for nothing."""
        self._began = None

    def restart_clock(self) -> None:
        """Time the step under way from now on."""
        self._began = self._clock()

    def drop(self, depth: int, error: BaseException) -> None:
        """Do without a depth that could not be made ready."""
        self.counters["errors"] += 1
        self.depths.discard(depth)
        _log.warning("autospec: depth %d is not ready and will not be used: %s", depth, error)

    def fail(self, error: BaseException | str) -> None:
        """Give up steering; the server stays as it was started."""
        self.counters["errors"] += 1
        if self.failed is None:
            name = f"{type(error).__name__}: " if isinstance(error, BaseException) else ""
            self.failed = f"gave up, depth {self.static_depth} from here on: {name}{error}"
            _log.error("autospec: %s", self.failed)

    def events(self) -> tuple[StatusEvent, ...]:
        """The latest changes of decision, oldest first."""
        if self.plan.controller is None:
            return ()
        return tuple(
            StatusEvent(event.step, event.batch_size, *event.decision)
            for event in list(self.plan.controller.log)[-EVENTS:]
        )

    def _chosen(self, batch_size: int, now_s: float) -> int:
        controller = self.plan.controller
        if controller is None:
            return self.static_depth
        (depth, correct), self._news = self._news, (0, ())
        shadow, self._shadow = self._shadow, ()
        try:
            if self._began is not None:
                self._time(now_s - self._began, batch_size)
            decision = controller.decide(Observation(batch_size, depth, correct, shadow))
            if controller.failed is not None:
                self.fail(controller.failed)
                return self.static_depth
            return self._look(self._count(decision, batch_size), batch_size)
        except Exception as error:  # noqa: BLE001  # the server must outlive any fault in here
            self.fail(error)
            return self.static_depth

    def _time(self, seconds: float, batch_size: int) -> None:
        """Keep the time of the latest step, unless its batch was another or it cannot be told."""
        live = self.plan.live
        if live is None or self._size != batch_size:
            return
        # Under overlap the time between two launches is that of the step before.
        if self._alike or not self._overlaps:
            live.learn(self.depth, batch_size, 1000 * seconds)

    def _look(self, depth: int, batch_size: int) -> int:
        """Now and then another depth than the policy's, as long as its time was never seen."""
        live = self.plan.live
        place = self.steps % _LOOK_EVERY
        if live is None or self.plan.kind != "throughput" or place > self._overlaps:
            return depth
        for other in (0, self.static_depth):
            if other != depth and other in self.depths and not live.known(other, batch_size):
                self.counters["probe_steps"] += 1
                return other
        return depth

    def _count(self, decision: Decision, batch_size: int) -> int:
        depth = decision.depth
        if depth not in self.depths:
            depth = max((ready for ready in self.depths if ready < depth), default=0)
            depth = depth if depth in self.depths else self.static_depth
        counters = self.counters
        if decision.want == "probe":
            counters["probe_steps"] += 1
        elif depth != self._settled:
            if self._settled is not None:
                counters["switches"] += 1
                counters["fallbacks"] += depth == 0
                counters["recoveries"] += self._settled == 0
            self._settled = depth
        if batch_size in self.depth_by_batch or len(self.depth_by_batch) < _BATCHES:
            self.depth_by_batch[batch_size] = depth
        return depth
