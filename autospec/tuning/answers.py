"""The lossless check inside a confirmation: which launch answers when, and where its result stays.

Answers are never stored. A confirmation resumed before its check was done asks for them anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from autospec import schema
from autospec.config import SpecConfig
from autospec.fidelity import Lossless
from autospec.measure import lossless
from autospec.measurement import Request

__all__ = ["AnswerCheck", "Ask", "AskedServer"]


class AskedServer(lossless.GreedyServer, Protocol):
    """A running server that can be asked for answers, as tokens and as text."""

    async def answer_text(self, request: Request) -> str:
        """The greedy answer as text."""
        ...


#: Asks a running server something, beside or instead of its passes.
Ask = Callable[[AskedServer, Sequence[Request]], Awaitable[None]]

#: The check's result inside its study's folder.
_RESULT: Final = "lossless.yaml"


@dataclass(frozen=True, slots=True)
class _Checked:
    """One configuration's result."""

    config: SpecConfig
    lossless: Lossless


@dataclass(frozen=True, slots=True)
class _Kept:
    """Results at rest."""

    checked: tuple[_Checked, ...]
    schema: int = schema.SCHEMA


class AnswerCheck:
    """Whether the greedy answers of each finalist are those of plain decoding.

    Args:
        folder: the study's, where the results stay.
        configs: the finalists.
        concurrency: at which answers are collected.

    Attributes:
        results: by configuration, once they are known, in this session or an earlier one.

    Raises:
        SchemaError: earlier results cannot be read.
    """

    def __init__(self, folder: Path, configs: Sequence[SpecConfig], concurrency: int) -> None:
        self._path = folder / _RESULT
        self._configs = tuple(configs)
        self._concurrency = concurrency
        self._plain: lossless.Answers = {}
        self._answers: dict[SpecConfig, lossless.Answers] = {}
        self.results: dict[SpecConfig, Lossless] = {}
        if self._path.is_file():
            kept = schema.load(_Kept, schema.read_yaml(self._path), str(self._path))
            found = {item.config: item.lossless for item in kept.checked}
            self.results = {config: found[config] for config in configs if config in found}

    @property
    def is_done(self) -> bool:
        """Whether every finalist has a result."""
        return all(config in self.results for config in self._configs)

    def of_plain(self) -> Ask | None:
        """What the first launch of plain decoding is asked; None if all results are known."""
        return None if self.is_done else self._ask_plain

    def of(self, config: SpecConfig) -> Ask | None:
        """What a finalist is asked."""
        if self.is_done:
            return None

        async def ask(server: lossless.GreedyServer, requests: Sequence[Request]) -> None:
            self._answers[config] = await lossless.collect(server, requests, self._concurrency)

        return ask

    def comparison(self) -> Ask | None:
        """What the second launch of plain decoding is asked; it gives the results."""
        return None if self.is_done else self._compare

    def keep(self) -> None:
        """Write the results.

        Raises:
            StorageError: they could not be written.
        """
        if self.results:
            kept = _Kept(tuple(_Checked(*item) for item in self.results.items()))
            schema.write_yaml(self._path, kept)

    async def _ask_plain(self, server: lossless.GreedyServer, requests: Sequence[Request]) -> None:
        self._plain = await lossless.collect(server, requests, self._concurrency)

    async def _compare(self, server: lossless.GreedyServer, requests: Sequence[Request]) -> None:
        configs, answers = tuple(self._answers), list(self._answers.values())
        found = await lossless.check_each(server, requests, self._plain, answers, self._concurrency)
        self.results = dict(zip(configs, found, strict=True))
