"""Two arms that take turns: which server is up, and what each has made so far."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from autospec.bench.fairness import Fairness, check_fairness
from autospec.bench.plan import Plan
from autospec.bench.result import Subject
from autospec.bench.serve import BenchListener, Served, served
from autospec.bench.session import Session, open_session
from autospec.bench.target import Running, Target
from autospec.errors import MeasureError
from autospec.measurement import Run

__all__ = ["Lineup", "Side"]


@dataclass(slots=True)
class Side:
    """One arm of a comparison and what it has made so far.

    Attributes:
        label: ``A`` or ``B``.
        target: what it is.
        runs: its passes.
        warnings: what was noticed beside them.
        launch_s: how long each of its launches took.
    """

    label: str
    target: Target
    runs: list[Run] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    launch_s: list[float] = field(default_factory=list)
    found: Subject | None = None

    @property
    def subject(self) -> Subject:
        """What answered.

        Raises:
            MeasureError: nothing has yet.
        """
        if self.found is None:
            raise MeasureError(f"{self.target.name} was not measured")
        return self.found


@dataclass(frozen=True, slots=True)
class _Open:
    server: Served
    session: Session
    stack: contextlib.ExitStack


class Lineup:
    """Opens the arms as they are needed, as a context manager.

    Two servers that run already stay connected; a launched one is stopped before the next is
    opened, and goes on while its arm does.

    Args:
        sides: A and B.
        plan: what is sent.
        listener: told what happens.
        total: passes of both arms, at most.
        force: let arms differ in more than they should.

    Attributes:
        fairness: in what the servers differ, once both have answered.
    """

    def __init__(
        self,
        sides: tuple[Side, Side],
        plan: Plan,
        listener: BenchListener,
        *,
        total: int,
        force: bool = False,
    ) -> None:
        self.sides = sides
        self.plan = plan
        self.listener = listener
        self.fairness = Fairness()
        self._force = force
        self._total = total
        self._open: dict[str, _Open] = {}
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._runner:
            self._close()

    def open(self, side: Side) -> None:
        """Have the arm's server answer.

        Raises:
            EngineError: it cannot be launched, reached or measured.
            MismatchError: it is the second to answer, and comparing it would be unfair.
        """
        if side.label in self._open:
            return
        if not all(isinstance(each.target, Running) for each in self.sides):
            self._close()
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(served(side.target, self.listener))
            session = self._connect(side, server, stack)
            self._open[side.label] = _Open(server, session, stack.pop_all())
        if server.launch_s is not None:
            side.launch_s.append(server.launch_s)
        if side.found is None:
            self._meet(side, session)

    def passes(self, side: Side, repeats: Iterable[int]) -> None:
        """Make passes of an open arm: every load for each repeat.

        Raises:
            MeasureError: a pass yielded nothing that can be trusted.
            EngineError: the server died, or refuses what a pass needs.
        """
        opened = self._open[side.label]
        for repeat in repeats:
            for load in self.plan.loads:
                with opened.server.watched():
                    run = self._runner.run(opened.session.run_pass(load, repeat))
                side.runs.append(run)
                done = sum(len(each.runs) for each in self.sides)
                self.listener.pass_done(side.label, run, done, self._total)

    def _connect(self, side: Side, server: Served, stack: contextlib.ExitStack) -> Session:
        session = open_session(side.target, server.url, self.plan)
        with server.watched():
            opened = self._runner.run(session.__aenter__())
        stack.callback(lambda: self._runner.run(session.__aexit__(None, None, None)))
        return opened

    def _meet(self, side: Side, session: Session) -> None:
        """Take note of who answered first for an arm, and compare once both have."""
        side.found = session.subject
        side.warnings += session.warnings
        self.listener.note(f"{side.label} is {side.target.name}")
        for line in session.warnings:
            self.listener.note(f"warning: {line}")
        for line in session.subject.adjusted:
            self.listener.note(f"the server changed {line}")
        a, b = self.sides
        if a.found is not None and b.found is not None:
            self.fairness = check_fairness(a.found, b.found, force=self._force)

    def _close(self) -> None:
        while self._open:
            _, opened = self._open.popitem()
            opened.stack.close()
