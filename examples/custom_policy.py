"""A policy of your own: speculate while few requests run, else decode plainly.

Name it wherever a policy is named, with this folder on PYTHONPATH:

autospec replay policy TRACE --policy custom_policy:SmallBatches --costs COSTS
"""

from __future__ import annotations

from dataclasses import dataclass

from autospec.control.load import PolicyFile, make_controller
from autospec.control.policy import Decision, Observation, Setting
from autospec.control.replay import Ground, replay
from autospec.control.worlds import make_world


class SmallBatches:
    """The greatest depth up to a batch size, plain decoding above it."""

    @dataclass(frozen=True, slots=True)
    class Parameters:
        """What a policy file may give."""

        most: int = 4

    def __init__(self, setting: Setting, parameters: Parameters) -> None:
        self._depth = setting.deepest
        self._most = parameters.most

    def decide(self, observation: Observation) -> Decision:
        """Said before every step; the same input must give the same answer on every rank."""
        if observation.batch_size <= self._most:
            return Decision(self._depth, f"at most {self._most} requests run")
        return Decision(0, f"more than {self._most} requests run")


def main() -> None:
    """Try it on a seeded trace in which the batch grows and shrinks."""
    world = make_world("ramp", seed=1)
    ground = Ground(world.trace, world.model.costs)
    policy = PolicyFile(f"{__name__}:SmallBatches", {"most": 8})
    result = replay(ground, make_controller(policy, ground.setting))
    print(f"simulated: {result.whole.vs_plain:.2f}x of plain decoding")


if __name__ == "__main__":
    main()
