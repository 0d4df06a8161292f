"""The machine's noise: plain decoding launched once more, right after the baseline."""

from __future__ import annotations

import time
from functools import partial
from itertools import chain

from autospec import evidence
from autospec.config import PLAIN
from autospec.measure import stats
from autospec.measurement import Measurement
from autospec.tune.objective import Figure, figures, throughput
from autospec.tune.samplers import Proposal
from autospec.tune.study import Study
from autospec.tune.trial import Listener, run_trial
from autospec.tuning.answers import Ask
from autospec.tuning.arm import Arms
from autospec.tuning.points import interval, short

__all__ = ["compare_launches", "known_noise", "launch_again"]


def launch_again(
    study: Study,
    arms: Arms,
    listener: Listener,
    *,
    ask: Ask | None = None,
    asked: str = "corpus",
) -> None:
    """Make the second launch, unless the study has it or it failed; a failure is only recorded.

    Args:
        study: where it is recorded as a trial of kind ``noise``.
        arms: measures a configuration.
        listener: told of it.
        ask: what else the server is asked.
        asked: the part whose prompts that takes.

    Raises:
        AutospecError: the study cannot be written, or no server can be started at all.
        KeyboardInterrupt: after putting the running trial back.
    """
    if any(trial.has_ended for trial in study.trials("noise")):
        return
    run_trial(
        study,
        "noise",
        Proposal(PLAIN, "plain decoding once more, to know this machine's noise"),
        partial(arms.measure, ask=ask, asked=asked) if ask else arms.measure,
        evaluate=lambda _measurement: None,
        clock=time.monotonic,
        listener=listener,
    )


def known_noise(
    study: Study, baseline: Measurement, figure: Figure = throughput
) -> evidence.Noise | None:
    """What the second launch showed; None when there is none."""
    done = [trial for trial in study.trials("noise") if trial.state == "complete"]
    return compare_launches(baseline, study.measurement(done[-1].id), figure) if done else None


def compare_launches(
    first: Measurement, second: Measurement, figure: Figure = throughput
) -> evidence.Noise:
    """Two launches of one configuration over the tune prompts, as a profile keeps it."""
    levels = sorted({run.concurrency for run in first.runs})
    pairs = [
        tuple(tuple(figures(arm, level, "tune", figure).values()) for arm in (second, first))
        for level in levels
    ]
    found = [stats.noise(*pair) for pair in pairs]
    # All pairs of all loads: from five on, one disturbed pass does not make the floor.
    overall = stats.noise(*(tuple(chain(*arm)) for arm in zip(*pairs, strict=True)))
    return evidence.Noise(
        ratio=interval(overall.ratio),
        floor=short(overall.floor),
        repeats=found[0].ratio.n,
        loads=tuple(
            evidence.NoiseAtLoad(level, interval(noise.ratio), short(noise.spread))
            for level, noise in zip(levels, found, strict=True)
        ),
    )
