"""The real engine on the CPU: every method decodes exactly what plain decoding does, in float32."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from autospec import demo, metrics
from autospec.config import PLAIN, SpecConfig
from autospec.engine.args import adjusted, config_of
from tests.real_engine import Answers, ask, serving

pytestmark = pytest.mark.engine


def configs(draft: Path, eagle: Path) -> dict[str, SpecConfig]:
    """One configuration of each kind that a CPU can run."""
    ngram = (("ngram_match_type", "BFS"), ("ngram_max_bfs_breadth", 4))
    return {
        "ngram": SpecConfig("NGRAM", num_draft_tokens=8, options=ngram),
        "standalone-chain": SpecConfig("STANDALONE", 3, 1, 4, str(draft)),
        "eagle-tree": SpecConfig("EAGLE", 3, 2, 6, str(eagle)),
        "demo-draft-tree": SpecConfig("STANDALONE", 3, 4, 8, str(demo.draft_path())),
    }


@pytest.mark.parametrize("kind", ["ngram", "standalone-chain", "eagle-tree", "demo-draft-tree"])
def test_speculation_changes_no_answer(
    kind: str, plain: Answers, demo_model: Path, eagle_draft: Path, tmp_path: Path
) -> None:
    """Greedy outputs equal plain decoding's token by token, and the counters add up."""
    config = configs(demo_model, eagle_draft)[kind]
    with serving(demo_model, config, tmp_path / "server.log") as (server, arguments):
        answers = asyncio.run(ask(server.url))
    assert answers.output_ids == plain.output_ids
    assert adjusted(arguments, answers.resolved) == ()
    assert config_of(answers.resolved).num_draft_tokens == config.num_draft_tokens
    for record in answers.records:
        assert record.error is None
        assert record.verify_ct is not None
        assert sum(record.correct_histogram) == record.verify_ct
        correct = sum(i * count for i, count in enumerate(record.correct_histogram))
        assert correct == record.num_correct_drafts
    if kind == "standalone-chain":
        # The target drafts for itself here, so most drafts are right.
        assert (metrics.accept_length(answers.records) or 0) > 2
    if kind == "demo-draft-tree":
        # The card has the figures; these bounds hold on any machine.
        assert of_class(answers, "mail") > 2
        assert of_class(answers, "chat") < of_class(answers, "mail")


def of_class(answers: Answers, label: str) -> float:
    """Accept length over the prompts of one class."""
    return metrics.accept_length(r for r in answers.records if r.label == label) or 0.0


def test_plain_decoding_reports_no_speculation(plain: Answers) -> None:
    """Its answers end by themselves or at the limit, and nothing was verified."""
    assert config_of(plain.resolved) == PLAIN
    assert all(record.verify_ct is None for record in plain.records)
    assert {record.finish_reason for record in plain.records} <= {"stop", "length"}
