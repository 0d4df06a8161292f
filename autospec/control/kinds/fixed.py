"""``fixed``: one depth, always."""

from __future__ import annotations

from dataclasses import dataclass

from autospec.control.policy import Decision, Observation, Setting
from autospec.errors import ConfigError
from autospec.evidence import require

__all__ = ["Fixed"]


class Fixed:
    """Drafts at one depth, whatever happens."""

    @dataclass(frozen=True, slots=True)
    class Parameters:
        """What a policy file may give.

        Attributes:
            depth: drafts a request; the deepest that the server can run by default.
        """

        depth: int | None = None

        def __post_init__(self) -> None:
            require(self.depth is None or self.depth >= 0, "depth", self.depth, "at least 0")

    def __init__(self, setting: Setting, parameters: Parameters) -> None:
        depth = setting.deepest if parameters.depth is None else parameters.depth
        if depth not in setting.depths:
            known = ", ".join(map(str, setting.depths))
            raise ConfigError(f"depth is {depth}, the server can run {known}")
        self._decision = Decision(depth, "the depth is fixed")

    def decide(self, observation: Observation) -> Decision:
        """The one depth."""
        del observation
        return self._decision
