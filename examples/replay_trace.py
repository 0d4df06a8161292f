"""Compare runtime policies on a trace, without a server. What it prints is simulated.

python examples/replay_trace.py TRACE COSTS

A recorded trace comes from AUTOSPEC_TRACE on a server; without arguments a seeded one is made, in
which acceptance collapses and comes back.
"""

from __future__ import annotations

import sys
from pathlib import Path

from autospec.control.costs import load_costs
from autospec.control.load import load_policy, make_controller
from autospec.control.replay import Ground, replay
from autospec.control.trace import read_trace
from autospec.control.worlds import make_world


def main(*paths: str) -> None:
    """Print what each policy would have made of every phase."""
    if paths:
        ground = Ground(read_trace(Path(paths[0])), load_costs(Path(paths[1])))
    else:
        world = make_world("collapse", seed=1)
        ground = Ground(world.trace, world.model.costs)
    for name in ("off", "fixed", "sglang-adaptive", "throughput"):
        controller = make_controller(load_policy(name), ground.setting)
        result = replay(ground, controller)
        phases = ", ".join(f"{part.phase} {part.vs_plain:.2f}x" for part in result.phases)
        print(f"simulated {name:<16} {result.whole.vs_plain:.2f}x of plain ({phases})")


if __name__ == "__main__":
    main(*sys.argv[1:])
