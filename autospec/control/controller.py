"""The controller: asks a policy, passes its answer through the gates, and keeps a log.

Deciding, damping and acting are apart: the policy decides, the gates damp, the caller acts. A
policy that raises, or that answers nonsense, is never asked again: the server goes on at a static
depth, and every later decision says why.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from autospec.control.gates import Gate, Gates
from autospec.control.policy import Decision, Observation, Policy, Setting

__all__ = ["LOG_LENGTH", "Controller", "Event"]

#: Decisions that the log keeps.
LOG_LENGTH = 256


class Event(NamedTuple):
    """A decision that was not the one before.

    Attributes:
        step: steps decided before this one.
        batch_size: of the step that it was made for.
        decision: what holds from then on.
    """

    step: int
    batch_size: int
    decision: Decision


class Controller:
    """One policy at work on one server.

    Attributes:
        log: the latest changes of decision, oldest first, at most ``LOG_LENGTH``.
        steps: decisions made.
        switches: changes of the settled depth.
        probe_steps: steps run to learn from.
        failed: what the policy raised; None while it works.
    """

    def __init__(
        self,
        setting: Setting,
        policy: Policy,
        gates: Gates = Gates(),  # noqa: B008  # frozen
        *,
        static_depth: int = 0,
    ) -> None:
        """Put a policy to work.

        Args:
            setting: where it works.
            policy: made for this setting.
            gates: what its decisions must pass.
            static_depth: where the server goes if the policy fails; plain decoding by default.
        """
        self._known = frozenset(setting.depths)
        self._setting = setting
        self._policy = policy
        self._gate = None if gates == Gates() else Gate(gates)
        self._static_depth = setting.at_most(static_depth)
        self._last: Decision | None = None
        self._settled: int | None = None
        self.log: deque[Event] = deque(maxlen=LOG_LENGTH)
        self.steps = 0
        self.switches = 0
        self.probe_steps = 0
        self.failed: str | None = None

    def decide(self, observation: Observation) -> Decision:
        """Say how the coming step is to run; never raises on the policy's behalf."""
        decision = self._ask(observation)
        if self._gate is not None:
            decision = self._gate(decision, observation)
        if decision.depth not in self._known:
            decision = decision._replace(depth=self._setting.at_most(decision.depth))
        if decision is not self._last:
            self._note(decision, observation.batch_size)
        self.steps += 1
        self.probe_steps += decision.want == "probe"
        return decision

    def _ask(self, observation: Observation) -> Decision:
        if self.failed is None:
            try:
                decision = self._policy.decide(observation)
                if isinstance(decision, Decision) and type(decision.depth) is int:
                    return decision
                self.failed = f"it answered {decision!r:.60}"
            except Exception as error:  # noqa: BLE001  # a user's policy must not end the server
                self.failed = f"{type(error).__name__}: {error}"
        reason = f"the policy failed, depth {self._static_depth} from here on: {self.failed}"
        return Decision(self._static_depth, reason)

    def _note(self, decision: Decision, batch_size: int) -> None:
        if decision != self._last:
            self.log.append(Event(self.steps, batch_size, decision))
        self._last = decision
        if decision.want == "settle" and decision.depth != self._settled:
            self.switches += self._settled is not None
            self._settled = decision.depth
