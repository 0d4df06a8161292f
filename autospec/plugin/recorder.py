"""Records a trace of a running server, in the form that ``control.trace`` reads.

A step costs the server one tuple in a list; another thread writes. The file ends at a size, never
in the middle of a line.
"""

from __future__ import annotations

import json
import os
from collections import deque
from pathlib import Path
from typing import Final

from autospec.errors import StorageError
from autospec.schema import SCHEMA

__all__ = ["MAX_BYTES", "MAX_WAITING", "Recorder"]

#: Where a trace ends.
MAX_BYTES: Final = 256 * 2**20
#: Steps that may wait to be written; older ones are dropped, and counted.
MAX_WAITING: Final = 65536


class Recorder:
    """A trace file that grows.

    Attributes:
        steps: steps written.
        dropped: steps lost because nobody called ``flush`` for too long.
        full: whether the file has reached its size.
    """

    def __init__(
        self, path: Path, *, algorithm: str, depth: int, topk: int, max_bytes: int = MAX_BYTES
    ) -> None:
        """Begin the file anew, with its header.

        Raises:
            StorageError: it cannot be written.
        """
        self.path = path
        self.steps = self.dropped = 0
        self.full = False
        self._depth = depth
        self._room = max_bytes - 128  # of which the header takes most
        self._began: float | None = None
        self._waiting: deque[tuple[float, list[int]]] = deque(maxlen=MAX_WAITING)
        header = {"schema": SCHEMA, "algorithm": algorithm, "depth": depth, "topk": topk}
        self._append(os.O_TRUNC, [json.dumps(header) + "\n"])

    def add(self, time_s: float, correct: list[int]) -> None:
        """Keep one step at full depth: when it ended, and the correct drafts of each request."""
        if correct and not self.full:
            self.dropped += len(self._waiting) == MAX_WAITING
            self._waiting.append((time_s, correct))

    def flush(self) -> None:
        """Write what waits.

        Raises:
            StorageError: it could not be written; nothing more will be.
        """
        lines: list[str] = []
        while self._waiting and not self.full:
            line = self._line(*self._waiting.popleft())
            self.full = len(line) > self._room
            if not self.full:
                self._room -= len(line)
                lines.append(line)
        self._append(os.O_APPEND, lines)
        self.steps += len(lines)

    def _append(self, how: int, lines: list[str]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | how, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.writelines(lines)
        except OSError as error:
            self.full = True
            raise StorageError(f"{self.path}: cannot be written ({error.strerror})") from error

    def _line(self, time_s: float, correct: list[int]) -> str:
        if self._began is None:
            self._began = time_s
        right = [min(max(count, 0), self._depth) for count in correct]
        line = {"t": round(time_s - self._began, 6), "batch": len(right), "correct": right}
        return json.dumps(line) + "\n"
