"""The confirmation: the finalist against plain decoding on prompts the search never saw.

Three launches in the order A B B A: plain, the finalist with twice the passes, plain. A machine
that grows steadily slower or faster treats both arms alike.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from functools import partial

from autospec.config import PLAIN, SpecConfig
from autospec.measurement import Measurement
from autospec.tune.samplers import Proposal
from autospec.tune.study import Study, Trial
from autospec.tune.trial import Listener, run_trial
from autospec.tuning.arm import Arms

__all__ = ["Confirmation", "confirm"]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Both arms on the confirm part, as many passes each; or why there is none."""

    plain: Measurement | None = None
    finalist: Measurement | None = None
    failure: str = ""


def confirm(
    study: Study, arms: Arms, finalist: SpecConfig, repeats: int, listener: Listener
) -> Confirmation:
    """Measure both arms, going on where an earlier session stopped.

    Args:
        study: where the launches are recorded as trials of kind ``confirm``.
        arms: measures a configuration.
        finalist: the best of the search.
        repeats: passes at each load and launch of plain; the finalist makes twice as many.
        listener: told of each launch.

    Raises:
        AutospecError: the study cannot be written, or no server can be started at all.
        KeyboardInterrupt: after putting the running trial back.
    """
    order = ((PLAIN, 0, repeats), (finalist, 0, 2 * repeats), (PLAIN, repeats, repeats))
    results: list[Measurement] = []
    for number, (config, first_repeat, passes) in enumerate(order, start=1):
        reason = f"launch {number} of {len(order)} to confirm {finalist}"
        done = _finished(study, config, reason)
        if done is not None:
            results.append(study.measurement(done.id))
            continue
        trial, failure = run_trial(
            study,
            "confirm",
            Proposal(config, reason),
            partial(arms.measure, part="confirm", first_repeat=first_repeat, repeats=passes),
            evaluate=lambda _measurement: None,
            clock=time.monotonic,
            listener=listener,
        )
        if failure is not None:
            return Confirmation(failure=f"{config.label} could not be confirmed: {failure}")
        results.append(study.measurement(trial.id))
    before, best, after = results
    plain = dataclasses.replace(
        before,
        runs=before.runs + after.runs,
        duration_s=before.duration_s + after.duration_s,
        warnings=before.warnings + after.warnings,
    )
    return Confirmation(plain, best)


def _finished(study: Study, config: SpecConfig, reason: str) -> Trial | None:
    """The trial of an earlier session that was this very launch."""
    return next(
        (
            trial
            for trial in reversed(study.trials("confirm"))
            if (trial.state, trial.config, trial.reason) == ("complete", config, reason)
        ),
        None,
    )
