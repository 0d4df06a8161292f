"""The real engine on the CPU: every method decodes exactly what plain decoding does, in float32.

In bfloat16 this model has so many near-ties that two batch shapes differ, so exact text would be no
test there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from autospec import demo, metrics
from autospec.config import PLAIN, SpecConfig
from autospec.engine import cpu
from autospec.engine.args import Deployment, adjusted, config_of, server_args
from autospec.engine.client import EngineClient
from autospec.engine.constraints import require_valid
from autospec.engine.models import read_model
from autospec.engine.server import ServerProcess
from autospec.measurement import Request, RequestRecord

pytestmark = pytest.mark.engine

#: Two of each class.
NUM_PROMPTS = 6
MAX_NEW_TOKENS = 40


@dataclass(frozen=True)
class Answers:
    """What one server answered, greedily, all prompts at once."""

    output_ids: tuple[tuple[int, ...], ...]
    records: tuple[RequestRecord, ...]
    resolved: dict[str, object]


@contextmanager
def serving(
    model: Path, config: SpecConfig, log: Path
) -> Iterator[tuple[ServerProcess, dict[str, object]]]:
    """One real server in float32."""
    deployment = Deployment(
        model=str(model),
        device="cpu",
        dtype="float32",
        max_running_requests=48,
        mem_fraction_static=0.2,
        context_length=1024,
    )
    require_valid(config, deployment, read_model(str(model)))
    arguments = server_args(deployment, config)
    with ServerProcess(arguments, environment=cpu.environment(), log_path=log) as server:
        yield server, arguments


async def ask(url: str, count: int = NUM_PROMPTS) -> Answers:
    """Send prompts of all classes, once for their ids and once streamed."""
    lines = demo.prompts_path().read_text(encoding="utf-8").splitlines()
    prompts = [json.loads(line) for line in lines[:count]]
    async with EngineClient(url) as client:
        requests = [
            Request(
                i,
                await client.tokenize(messages=prompt["messages"]),
                MAX_NEW_TOKENS,
                prompt["class"],
            )
            for i, prompt in enumerate(prompts)
        ]
        await client.flush()
        ids = await asyncio.gather(*(client.answer(request) for request in requests))
        await client.flush()
        records = await asyncio.gather(*(client.generate(request) for request in requests))
        resolved = (await client.server_info()).resolved
    return Answers(tuple(ids), tuple(records), dict(resolved))


@pytest.fixture(scope="session")
def plain(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Plain decoding's answers."""
    log = tmp_path_factory.mktemp("logs") / "plain.log"
    with serving(demo_model, PLAIN, log) as (server, _):
        return asyncio.run(ask(server.url))


@pytest.fixture(scope="session")
def eagle_draft(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A one-layer EAGLE head with random weights: it drafts nonsense, and must do no harm."""
    import torch
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("eagle")
    config = json.loads((demo_model / "config.json").read_text())
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    kv_width = hidden // heads * config["num_key_value_heads"]
    mlp, layer = config["intermediate_size"], "model.layers.0"
    shapes = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.fc.weight": (hidden, 2 * hidden),
        f"{layer}.self_attn.q_proj.weight": (hidden, hidden),
        f"{layer}.self_attn.k_proj.weight": (kv_width, hidden),
        f"{layer}.self_attn.v_proj.weight": (kv_width, hidden),
        f"{layer}.self_attn.o_proj.weight": (hidden, hidden),
        f"{layer}.mlp.gate_proj.weight": (mlp, hidden),
        f"{layer}.mlp.up_proj.weight": (mlp, hidden),
        f"{layer}.mlp.down_proj.weight": (hidden, mlp),
        f"{layer}.post_attention_layernorm.weight": (hidden,),
    }
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: torch.randn(shape, generator=generator) * 0.02 for name, shape in shapes.items()
    }
    save_file(weights, folder / "model.safetensors")
    # SGLang gives the head the embedding and output weights of its target, each on its own.
    changes = {
        "architectures": ["LlamaForCausalLMEagle"],
        "num_hidden_layers": 1,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


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
