"""One trial: measured and recorded whatever comes of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final, Protocol

from autospec.config import SpecConfig
from autospec.errors import (
    AutospecError,
    ConfigError,
    EngineError,
    EngineMissingError,
    MeasureError,
    MismatchError,
    PortTakenError,
)
from autospec.measurement import Measurement
from autospec.tune.samplers import Proposal
from autospec.tune.study import Study, Trial

__all__ = ["Listener", "SilentListener", "run_trial"]

#: What one configuration can do wrong. Anything else ends the search.
_TRIAL_ERRORS: Final = (EngineError, MeasureError, MismatchError, ConfigError)
#: Every further configuration would meet these too.
_FATAL_ERRORS: Final = (EngineMissingError, PortTakenError)


class Listener(Protocol):
    """Told of each trial, for a table or a progress bar."""

    def trial_started(self, number: int, config: SpecConfig, reason: str) -> None:
        """A trial begins; ``number`` is its id in the study."""
        ...

    def trial_finished(self, trial: Trial) -> None:
        """A trial has ended: complete, stopped early, or failed."""
        ...


class SilentListener:
    """A listener that does nothing."""

    def trial_started(self, number: int, config: SpecConfig, reason: str) -> None:
        """Do nothing."""

    def trial_finished(self, trial: Trial) -> None:
        """Do nothing."""


def run_trial(
    study: Study,
    kind: str,
    proposal: Proposal,
    measure: Callable[[SpecConfig], Measurement],
    *,
    evaluate: Callable[[Measurement], float | None],
    clock: Callable[[], float],
    listener: Listener,
) -> tuple[Trial, AutospecError | None]:
    """Measure and record one configuration.

    Args:
        study: where the trial is kept.
        kind: as ``Trial`` names them.
        proposal: what to measure, and why.
        measure: starts a server, measures, stops it.
        evaluate: the objective of a measurement, None where there is none.
        clock: monotonic, in seconds.
        listener: told of the beginning and the end.

    Returns:
        The trial, complete, pruned or failed, and what the configuration did wrong.

    Raises:
        AutospecError: what every further configuration would meet too; the trial is put back.
        KeyboardInterrupt: after putting the trial back.
    """
    number = study.start(proposal.config, kind, proposal.reason)
    begin_s = clock()
    failure: AutospecError | None = None
    try:
        listener.trial_started(number, proposal.config, proposal.reason)
        try:
            measurement = measure(proposal.config)
            study.complete(number, measurement, evaluate(measurement), clock() - begin_s)
        except _FATAL_ERRORS:
            raise
        except _TRIAL_ERRORS as error:
            failure = error
            log_tail = str(getattr(error, "log_tail", ""))
            study.fail(number, _one_line(error), log_tail, clock() - begin_s)
    except BaseException:
        # A trial left running is found by the next session too; the first error matters more.
        with contextlib.suppress(AutospecError):
            study.put_back(number, clock() - begin_s)
        raise
    trial = study.trial(number)
    listener.trial_finished(trial)
    return trial, failure


def _one_line(error: AutospecError) -> str:
    return " ".join(str(error).split()) or type(error).__name__
