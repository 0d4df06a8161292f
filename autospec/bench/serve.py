"""Servers for a measurement: started when there is none, and gone with what used them."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autospec.bench.target import Launch, Target
from autospec.engine.server import ServerProcess
from autospec.errors import EngineError, MeasureError, StorageError
from autospec.measurement import Run
from autospec.tuning.arm import check_dying

__all__ = ["BenchListener", "Served", "served"]


class BenchListener(Protocol):
    """Told what is going on, for whoever waits."""

    def note(self, text: str) -> None:
        """Something worth a line."""
        ...

    def phase(self, text: str) -> None:
        """Something that takes a while begins."""
        ...

    def pass_done(self, name: str, run: Run, done: int, total: int) -> None:
        """A pass of the server called ``name`` has ended: number ``done`` of ``total`` at most."""
        ...


@dataclass(frozen=True, slots=True)
class Served:
    """A server that answers.

    Attributes:
        url: where.
        launch_s: how long it took to be ready; None where someone else started it.
        explain: raises what its process died of, if it did.
    """

    url: str
    launch_s: float | None
    explain: Callable[[], None]

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Say of failures inside that the server died, where it did."""
        try:
            yield
        except (MeasureError, EngineError):
            self.explain()
            raise


@contextlib.contextmanager
def served(target: Target, listener: BenchListener) -> Iterator[Served]:
    """A server for the block: launched and stopped where someone else has not started it.

    Raises:
        LaunchError: it did not become ready; the message has the cause from its log.
    """
    if not isinstance(target, Launch):
        yield Served(target.url, None, lambda: None)
        return
    listener.phase(f"{target.name}: launching")
    with _log(target) as log_path:
        process = ServerProcess(
            target.arguments,
            environment=target.variables,
            log_path=log_path,
            timeout_s=target.timeout_s,
        )
        with process:
            listener.phase(f"{target.name}: ready after {process.launch_s or 0:.0f} s")
            yield Served(process.url, process.launch_s, lambda: check_dying(process))


@contextlib.contextmanager
def _log(target: Launch) -> Iterator[Path]:
    """Where the log of the next launch goes; it is gone after the block unless it is to be kept."""
    if target.logs is None:
        with tempfile.TemporaryDirectory(prefix="autospec-") as folder:
            yield Path(folder) / "server.log"
        return
    try:
        target.logs.mkdir(parents=True, exist_ok=True)
        number = len(list(target.logs.glob("*.log"))) + 1
    except OSError as error:
        raise StorageError(f"{target.logs}: cannot be written ({error.strerror})") from error
    name = re.sub(r"[^A-Za-z0-9=]+", "-", target.name).strip("-")
    yield target.logs / f"{number:03d}-{name}.log"
