"""Training and export, in a process of their own: torch and transformers stay out of pytest's."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autospec import demo
from autospec.engine.models import check_draft, read_model

ROOT = Path(__file__).parents[2]
#: Learns to count upwards, from nothing, in so many updates; prints the agreement and a weight.
COUNTING = """
import json, sys, torch
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
from tools.demo_draft import evaluate, figures, train
from tools.demo_draft.model import Example
from tools.demo_draft.plan import Plan

torch.set_num_threads(1)
torch.manual_seed(0)
shape = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
drafter = LlamaForCausalLM(LlamaConfig(vocab_size=64, **shape))
examples = [Example([first], list(range(first + 1, first + 9))) for first in range(50)]
class Stopped(Exception): pass
if sys.argv[3] != "0":
    keep = train._save
    def save(path, state, *rest):
        keep(path, state, *rest)
        if state.step == int(sys.argv[3]): raise Stopped
    train._save = save
plan = Plan(steps=int(sys.argv[2]), batch=10, rate=1e-2, save_every=10)
try:
    train.train(drafter, examples, {"counting": examples[:20]}, plan, Path(sys.argv[1]))
except Stopped:
    sys.exit(3)
found = figures.agreement(evaluate.hits(drafter, examples))
print(json.dumps([found, drafter.lm_head.weight.sum().item()]))
"""


def train(folder: Path, steps: int, stop_at: int = 0) -> Any:
    """Train for so many updates; None when it was stopped after ``stop_at`` of them."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTING, str(folder), str(steps), str(stop_at)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == (3 if stop_at else 0), done.stderr
    return None if stop_at else json.loads(done.stdout)


@pytest.mark.engine
def test_training_that_was_stopped_ends_where_it_would_have_ended(tmp_path: Path) -> None:
    """A checkpoint holds all there is: stopped and gone on with, the weights are the same."""
    for name in ("whole", "halves"):
        (tmp_path / name).mkdir()
    agreement, weight = train(tmp_path / "whole", 60)
    assert agreement > 0.5
    train(tmp_path / "halves", 60, stop_at=30)
    assert train(tmp_path / "halves", 60) == pytest.approx([agreement, weight], rel=1e-4)


def shipped() -> Path:
    """The drafter of the source tree."""
    folder = demo.draft_path()
    assert folder == ROOT / "examples" / "demo-draft"
    return folder


def test_shipped_drafter_is_small_and_in_bfloat16() -> None:
    """At most 28 MB of weights, each tensor in two bytes, the output tied to the embedding."""
    weights = shipped() / "model.safetensors"
    assert weights.stat().st_size <= 28_000_000
    with weights.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    assert {tensor["dtype"] for tensor in header.values()} == {"BF16"}
    assert header["model.embed_tokens.weight"]["shape"] == [49152, 256]
    assert "lm_head.weight" not in header
    assert json.loads((shipped() / "config.json").read_text())["tie_word_embeddings"] is True


def test_shipped_drafter_comes_with_card_and_licence() -> None:
    """The card names the licence, the target and both kinds of figures."""
    card = (shipped() / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlicense: apache-2.0\n")
    assert "SmolLM2-135M-Instruct" in card
    assert "## Held out" in card
    assert "## Through the real engine" in card
    assert "Apache License" in (shipped() / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.engine
def test_shipped_drafter_speaks_the_targets_tokens() -> None:
    """Nothing that makes text into tokens differs from the target's."""
    target = demo.model_path()
    check_draft(read_model(str(target)), read_model(str(shipped())), "STANDALONE")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (shipped() / name).read_bytes() == (target / name).read_bytes()
