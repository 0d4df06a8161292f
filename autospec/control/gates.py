"""Gates: bounds and damping around any policy, apart from its own reasoning."""

from __future__ import annotations

from dataclasses import dataclass

from autospec.control.policy import Decision, Observation
from autospec.evidence import require

__all__ = ["Gate", "Gates"]


@dataclass(frozen=True, slots=True)
class Gates:
    """What a policy's decisions must pass. The defaults let all pass.

    Attributes:
        max_depth: drafts no deeper than this.
        max_batch_size: plain decoding for larger batches.
        warmup_steps: steps at the beginning through which the first decision holds.
        dwell_steps: least steps between two changes of the settled depth.
    """

    max_depth: int | None = None
    max_batch_size: int | None = None
    warmup_steps: int = 0
    dwell_steps: int = 0

    def __post_init__(self) -> None:
        for name, least in (("max_depth", 0), ("max_batch_size", 1)):
            value = getattr(self, name)
            require(value is None or value >= least, name, value, f"at least {least}")
        for name in ("warmup_steps", "dwell_steps"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")


class Gate:
    """The gates of one server, with what they must remember."""

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        self._steps = 0
        self._since_change = 0
        self._settled: int | None = None

    def __call__(self, decision: Decision, observation: Observation) -> Decision:
        """Pass a decision, or say what holds instead and why."""
        return self._bound(self._damp(decision), observation)

    def _damp(self, decision: Decision) -> Decision:
        self._steps += 1
        self._since_change += 1
        settled, depth, gates = self._settled, decision.depth, self._gates
        if settled is None:
            self._settled = depth
        elif depth != settled:
            if self._steps <= gates.warmup_steps:
                return Decision(settled, f"gate: warm-up ends after step {gates.warmup_steps}")
            if decision.want == "settle":
                if self._since_change <= gates.dwell_steps:
                    return Decision(settled, f"gate: depth stays for {gates.dwell_steps} steps")
                self._settled, self._since_change = depth, 0
        return decision

    def _bound(self, decision: Decision, observation: Observation) -> Decision:
        gates = self._gates
        if gates.max_batch_size is not None and observation.batch_size > gates.max_batch_size:
            return Decision(0, f"gate: plain above batch size {gates.max_batch_size}")
        if gates.max_depth is not None and decision.depth > gates.max_depth:
            return decision._replace(
                depth=gates.max_depth, reason=f"{decision.reason}; gate: depth {gates.max_depth}"
            )
        return decision
