"""Builds an n-gram corpus from plain decoding's answers to prompts that are not measured."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from autospec import schema
from autospec.config import PLAIN
from autospec.errors import EngineError, MeasureError
from autospec.measurement import Request
from autospec.tune.samplers import Proposal
from autospec.tune.study import Study
from autospec.tune.trial import Listener, run_trial
from autospec.tuning.answers import Ask, AskedServer
from autospec.tuning.arm import Arms
from autospec.tuning.corpus import check_corpus

__all__ = ["Corpus"]

#: The digest of the corpus inside its study's folder.
_DIGEST: Final = "corpus.sha256"


class Corpus:
    """A corpus that is built while a study runs.

    Args:
        path: where it is written; what an earlier study left there is replaced, for it may answer
            prompts that are measured now.
        folder: the study's, which keeps the file's digest.
        concurrency: at which answers are collected.
    """

    def __init__(self, path: Path, folder: Path, concurrency: int) -> None:
        self._path = path
        self._kept = folder / _DIGEST
        self._concurrency = concurrency

    @property
    def is_there(self) -> bool:
        """Whether this study built it, in this session or an earlier one."""
        if not (self._path.is_file() and self._kept.is_file()):
            return False
        return check_corpus(self._path) == self._kept.read_text(encoding="utf-8").strip()

    def ask(self) -> Ask | None:
        """What plain decoding is asked; None where the corpus is there."""
        return None if self.is_there else self.build

    def require(self, study: Study, arms: Arms, listener: Listener) -> None:
        """Build it in a launch of its own, if no other launch of plain decoding did.

        Raises:
            AutospecError: it could not be built: every trial that needs it would fail.
            KeyboardInterrupt: after putting the running trial back.
        """
        if self.is_there:
            return
        _, failure = run_trial(
            study,
            "check",
            Proposal(PLAIN, "its answers to the prompts set aside, for the n-gram corpus"),
            lambda config: arms.answer(config, self.build, "corpus"),
            evaluate=lambda _measurement: None,
            clock=time.monotonic,
            listener=listener,
        )
        if failure is not None:
            raise failure

    async def build(self, server: AskedServer, requests: Sequence[Request]) -> None:
        """Ask plain decoding, and write its answers.

        Raises:
            MeasureError: a request was lost.
            StorageError: the file could not be written.
        """
        slots = asyncio.Semaphore(self._concurrency)

        async def one(request: Request) -> str:
            async with slots:
                return await server.answer_text(request)

        try:
            answers = await asyncio.gather(*map(one, requests))
        except EngineError as error:
            raise MeasureError(f"an answer for the corpus was lost: {error}") from error
        lines = "".join(json.dumps(text) + "\n" for text in answers if text)
        schema.write_text(self._path, lines, private=True)
        schema.write_text(self._kept, check_corpus(self._path) + "\n")
