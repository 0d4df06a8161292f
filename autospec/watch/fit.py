"""Whether the server that is watched fits its profile. Pure."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from autospec.config import SpecConfig
from autospec.control.costs import Costs
from autospec.control.drift import Drift, Misfit
from autospec.measurement import ServerDelta
from autospec.watch.known import Known
from autospec.watch.reading import Reading, Server
from autospec.watch.state import Finding, settled_depth
from autospec.watch.view import DriftView

__all__ = ["Fit"]

#: Share of steps run to learn from above which a stretch says nothing of the settled depth.
_MOST_PROBES: Final = 0.02


class Fit:
    """One profile against one server; another configuration is judged anew.

    Attributes:
        costs: the profile's step times, if they are of this server.
        notes: why they are not, and what else does not belong together.
    """

    def __init__(self, known: Known) -> None:
        self._known = known
        self._met: tuple[SpecConfig, str] | None = None
        self._drift: Drift | None = None
        self._unjudged: str | None = None
        self.costs: Costs | None = None
        self.notes: tuple[str, ...] = ()

    def meet(self, server: Server) -> None:
        """Take it that this is the server."""
        known, met = self._known, (server.config, server.model)
        if met == self._met:
            return
        self._met = met
        self.costs, why = known.costs_for(server.config)
        self.notes = () if why is None else (why,)
        if PurePath(server.model).name != PurePath(known.model).name:
            self.notes += (
                f"the server's model is {server.model}, {known.path} is of {known.model}",
            )
        self._drift = None
        if self.costs is not None:
            self._drift = Drift(self.costs, known.accept, noise_floor=known.noise_floor)

    def interrupt(self) -> None:
        """Take it that steps were missed."""
        if self._drift is not None:
            self._drift.interrupt()

    def learn(
        self, last: Reading, reading: Reading, found: Finding, counts: ServerDelta
    ) -> tuple[Misfit, ...]:
        """Judge the steps between two readings, if they were all at one depth.

        Returns:
            Misfits that did not stand before.
        """
        self._unjudged = _mixed(last, reading)
        if self._drift is None or found.depth is None:
            return ()
        if self._unjudged is not None:
            self._drift.interrupt()
            return ()
        return self._drift.learn(found.depth, counts, reading.time_s - last.time_s)

    def view(self) -> DriftView:
        """The verdict so far."""
        if self._drift is None:
            return DriftView("unjudged", next(iter(self.notes), "no server was seen yet"))
        misfits, blocks = self._drift.misfits, self._drift.blocks
        if misfits:
            reason = "; ".join(map(str, misfits))
            return DriftView("misfit", reason, blocks, self._known.retune)
        unjudged = self._unjudged or self._drift.unjudged
        if unjudged is not None or not blocks:
            return DriftView("unjudged", unjudged or "too few steps were seen yet", blocks)
        return DriftView("fits", "steps and drafts are as the profile says", blocks)


def _mixed(last: Reading, reading: Reading) -> str | None:
    """Why the steps between two readings may have been at several depths."""
    if reading.server.adaptive:
        return "SGLang's adaptive rule changes the depth from step to step"
    before, after = last.status, reading.status
    if before is None or after is None or not after.active:
        return None
    steps = after.steps - before.steps
    probes = after.counters.get("probe_steps", 0) - before.counters.get("probe_steps", 0)
    switches = after.counters.get("switches", 0) - before.counters.get("switches", 0)
    if switches or settled_depth(before) != settled_depth(after):
        return "the depth has just changed"
    if probes > _MOST_PROBES * steps:
        return "the policy is trying other depths"
    return None
