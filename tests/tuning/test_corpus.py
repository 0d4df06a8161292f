"""The n-gram corpus: a file that SGLang reads, of answers to prompts that are not measured."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from autospec.config import PLAIN, SpecConfig
from autospec.errors import ConfigError, LaunchError, MeasureError, RequestError
from autospec.measurement import Measurement, Request
from autospec.tune.study import Study
from autospec.tune.trial import SilentListener
from autospec.tuning.answers import Ask, AskedServer
from autospec.tuning.arm import Arms
from autospec.tuning.collect import Corpus
from autospec.tuning.corpus import check_corpus, corpus_beside

REQUESTS = [Request(index, (1, index), 4) for index in range(5)]


class Writer:
    """A server whose answer is the prompt's number in words, or nothing, or an error."""

    def __init__(self, lost: int | None = None) -> None:
        self.lost = lost
        self.in_flight = self.most = 0

    async def answer_text(self, request: Request) -> str:
        """The answer."""
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        if request.prompt == self.lost:
            raise RequestError("it was aborted")
        return f'number "{request.prompt}"\n' if request.prompt else ""


class FakeArms:
    """Launches that only answer."""

    def __init__(self, error: LaunchError | None = None) -> None:
        self.asked: list[tuple[SpecConfig, str]] = []
        self._error = error

    def answer(self, config: SpecConfig, ask: Ask, asked: str) -> Measurement:
        """Ask the writer."""
        self.asked.append((config, asked))
        if self._error is not None:
            raise self._error
        asyncio.run(self._run(ask))
        return Measurement(config, (), 1.0, 1.0)

    async def _run(self, ask: Ask) -> None:
        await ask(cast("AskedServer", Writer()), REQUESTS)


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    """An empty study."""
    with Study.create(tmp_path / "study", {}) as study:
        yield study


def build(corpus: Corpus, writer: Writer) -> None:
    """Have the corpus built."""
    asyncio.run(corpus.build(cast("AskedServer", writer), REQUESTS))


def test_answers_become_lines_that_sglang_reads(tmp_path: Path) -> None:
    """One JSON string a line, empty answers left out, as many in flight as said."""
    path = tmp_path / "p.corpus.jsonl"
    writer = Writer()
    build(Corpus(path, tmp_path, 2), writer)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [f'number "{i}"\n' for i in range(1, 5)]
    assert writer.most == 2
    assert len(check_corpus(path)) == 64


def test_corpus_of_another_study_is_built_anew(tmp_path: Path) -> None:
    """It may hold answers to what is measured now; one that was edited is not this study's."""
    path = tmp_path / "p.corpus.jsonl"
    path.write_text('"an answer of before"\n', encoding="utf-8")
    corpus = Corpus(path, tmp_path, 2)
    assert not corpus.is_there
    assert corpus.ask() is not None
    build(corpus, Writer())
    assert corpus.is_there
    assert corpus.ask() is None
    assert Corpus(path, tmp_path, 2).is_there
    path.write_text('"edited"\n', encoding="utf-8")
    assert not corpus.is_there


def test_lost_answer_leaves_no_corpus(tmp_path: Path) -> None:
    """A part of the answers is not what was asked for."""
    path = tmp_path / "p.corpus.jsonl"
    with pytest.raises(MeasureError, match="was lost: it was aborted"):
        build(Corpus(path, tmp_path, 2), Writer(lost=3))
    assert not path.exists()


def test_corpus_that_no_launch_built_gets_one_of_its_own(study: Study, tmp_path: Path) -> None:
    """Of plain decoding, over the prompts set aside; once."""
    corpus = Corpus(tmp_path / "p.corpus.jsonl", study.folder, 2)
    arms = FakeArms()
    for _ in range(2):
        corpus.require(study, cast("Arms", arms), SilentListener())
    assert arms.asked == [(PLAIN, "corpus")]
    assert [(t.kind, t.state) for t in study.trials()] == [("check", "complete")]


def test_study_ends_where_its_corpus_cannot_be_built(study: Study, tmp_path: Path) -> None:
    """Every trial that needs it would fail."""
    corpus = Corpus(tmp_path / "p.corpus.jsonl", study.folder, 2)
    arms = FakeArms(LaunchError("out of memory"))
    with pytest.raises(LaunchError, match="out of memory"):
        corpus.require(study, cast("Arms", arms), SilentListener())


def test_corpus_stands_beside_the_profile() -> None:
    """Under its name, wherever the profile goes."""
    assert corpus_beside(Path("/p/llama.yaml")) == Path("/p/llama.corpus.jsonl")
    assert corpus_beside(Path("llama.yaml")).is_absolute()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'"one"\n{"text": "two"}\n', "line 2: must be one JSON string"),
        (b"not quoted\n", "line 1: must be one JSON string"),
        (b"\n \n", "is empty"),
        (b"\xff\n", "not UTF-8"),
    ],
)
def test_file_that_sglang_would_refuse_is_refused_first(
    tmp_path: Path, content: bytes, said: str
) -> None:
    """With its line, and without a word of what stands there."""
    path = tmp_path / "c.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said) as raised:
        check_corpus(path)
    assert "two" not in str(raised.value)
    assert "quoted" not in str(raised.value)


def test_missing_corpus_is_refused_by_name(tmp_path: Path) -> None:
    """Before anything is launched."""
    with pytest.raises(ConfigError, match=r"none\.jsonl: cannot be read \(No such file"):
        check_corpus(tmp_path / "none.jsonl")
