"""The lossless check inside a confirmation: which launch answers when, and where its result stays.

Answers are never stored. A confirmation resumed before its check was done asks for them anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autospec import schema
from autospec.config import SpecConfig
from autospec.fidelity import Lossless
from autospec.measure import lossless
from autospec.measurement import Request

__all__ = ["AnswerCheck", "Ask"]

#: Asks a running server something, beside or instead of its passes.
Ask = Callable[[lossless.GreedyServer, Sequence[Request]], Awaitable[None]]

#: The check's result inside its study's folder.
_RESULT: Final = "lossless.yaml"


@dataclass(frozen=True, slots=True)
class _Kept:
    """A result at rest."""

    config: SpecConfig
    lossless: Lossless
    schema: int = schema.SCHEMA


class AnswerCheck:
    """Whether a configuration's greedy answers are those of plain decoding.

    Args:
        folder: the study's, where the result stays.
        config: the finalist.
        concurrency: at which answers are collected.

    Attributes:
        result: once it is known, in this session or an earlier one.

    Raises:
        SchemaError: an earlier result cannot be read.
    """

    def __init__(self, folder: Path, config: SpecConfig, concurrency: int) -> None:
        self._path = folder / _RESULT
        self._config = config
        self._concurrency = concurrency
        self._plain: lossless.Answers = {}
        self._candidate: lossless.Answers = {}
        self.result: Lossless | None = None
        if self._path.is_file():
            kept = schema.load(_Kept, schema.read_yaml(self._path), str(self._path))
            self.result = kept.lossless if kept.config == config else None

    def steps(self) -> tuple[Ask | None, Ask | None, Ask | None]:
        """What plain decoding, the finalist and plain decoding again are asked; None if known."""
        if self.result is not None:
            return None, None, None
        return self._ask_plain, self._ask_candidate, self._compare

    def keep(self) -> None:
        """Write the result.

        Raises:
            StorageError: it could not be written.
        """
        if self.result is not None:
            schema.write_yaml(self._path, _Kept(self._config, self.result))

    async def _ask_plain(self, server: lossless.GreedyServer, requests: Sequence[Request]) -> None:
        self._plain = await lossless.collect(server, requests, self._concurrency)

    async def _ask_candidate(
        self, server: lossless.GreedyServer, requests: Sequence[Request]
    ) -> None:
        self._candidate = await lossless.collect(server, requests, self._concurrency)

    async def _compare(self, server: lossless.GreedyServer, requests: Sequence[Request]) -> None:
        self.result = await lossless.check(
            server, requests, self._plain, self._candidate, self._concurrency
        )
