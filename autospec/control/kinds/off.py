"""``off``: plain decoding, always."""

from __future__ import annotations

from dataclasses import dataclass

from autospec.control.policy import Decision, Observation, Setting

__all__ = ["Off"]


class Off:
    """Never speculates."""

    @dataclass(frozen=True, slots=True)
    class Parameters:
        """There are none."""

    def __init__(self, setting: Setting, parameters: Parameters) -> None:
        del setting, parameters
        self._decision = Decision(0, "speculation is off")

    def decide(self, observation: Observation) -> Decision:
        """Plain decoding."""
        del observation
        return self._decision
