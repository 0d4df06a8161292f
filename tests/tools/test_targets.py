"""Answers are kept shard by shard, so that an interruption costs little."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.fake_sglang import FakeSGLang
from tools.demo_draft import targets
from tools.demo_draft.prompts import Prompt

PROMPTS = tuple(Prompt(f"Count to {number}.", "mail", 8) for number in range(10))


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four prompts a file."""
    monkeypatch.setattr(targets, "SHARD_PROMPTS", 4)


def test_answers_come_back_in_the_order_of_the_prompts(
    tmp_path: Path, fake_server: FakeSGLang
) -> None:
    """Every prompt has its own ids and an answer, and nothing is left to do."""
    asyncio.run(targets.answer(fake_server.url, targets.missing_shards(tmp_path, {"a": PROMPTS})))
    made = list(targets.answers(tmp_path, "a", PROMPTS))
    assert len({tuple(example["prompt"]) for example in made}) == len(PROMPTS)
    assert all(0 < len(example["answer"]) <= 8 for example in made)
    assert targets.missing_shards(tmp_path, {"a": PROMPTS}) == []
    assert not list(tmp_path.rglob("*.partial"))


def test_second_run_answers_only_what_is_missing(tmp_path: Path, fake_server: FakeSGLang) -> None:
    """A file that is there is kept as it is."""
    shards = targets.missing_shards(tmp_path, {"a": PROMPTS})
    asyncio.run(targets.answer(fake_server.url, shards[1:2]))
    kept = shards[1][0].read_bytes()
    rest = targets.missing_shards(tmp_path, {"a": PROMPTS})
    assert [path for path, _ in rest] == [shards[0][0], shards[2][0]]
    asyncio.run(targets.answer(fake_server.url, rest))
    assert shards[1][0].read_bytes() == kept


def test_no_server_is_started_when_nothing_is_missing(tmp_path: Path) -> None:
    """With all answers there the model's folder need not even exist."""
    for path, prompts in targets.missing_shards(tmp_path, {"a": PROMPTS}):
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps([{"prompt": [1], "answer": [2]}] * len(prompts)))
    targets.answer_all(tmp_path, tmp_path / "no-model", {"a": PROMPTS})
    assert len(list(targets.answers(tmp_path, "a", PROMPTS))) == len(PROMPTS)


def test_failure_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    """A server that cannot be reached adds nothing."""
    with pytest.raises(ExceptionGroup):
        asyncio.run(
            targets.answer("http://127.0.0.1:9", targets.missing_shards(tmp_path, {"a": PROMPTS}))
        )
    assert list(tmp_path.rglob("*.json")) == []
