"""Real servers on the CPU for tests, in float32, and what one answers.

In bfloat16 the demo model has so many near-ties that two batch shapes differ, so exact text would
be no test there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autospec import demo
from autospec.config import SpecConfig
from autospec.engine import cpu
from autospec.engine.args import Deployment, server_args
from autospec.engine.client import EngineClient
from autospec.engine.constraints import require_valid
from autospec.engine.models import read_model
from autospec.engine.server import ServerProcess
from autospec.measurement import Request, RequestRecord

#: Two of each class.
NUM_PROMPTS = 6
MAX_NEW_TOKENS = 40
#: A cache of this size is there at once; a fifth of the memory takes seconds to touch.
MAX_TOTAL_TOKENS = 16384


@dataclass(frozen=True)
class Answers:
    """What one server answered, greedily, all prompts at once."""

    output_ids: tuple[tuple[int, ...], ...]
    records: tuple[RequestRecord, ...]
    resolved: dict[str, object]


def deployed(model: Path, dtype: str, *extra: str) -> Deployment:
    """What all real servers of tests have in common."""
    return Deployment(
        model=str(model),
        device="cpu",
        dtype=dtype,
        max_running_requests=48,
        mem_fraction_static=0.2,
        context_length=1024,
        max_total_tokens=MAX_TOTAL_TOKENS,
        extra=extra,
    )


@contextmanager
def serving(
    model: Path, config: SpecConfig, log: Path, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[ServerProcess, dict[str, object]]]:
    """One real server in float32 with its arguments, and these variables in its environment."""
    deployment = deployed(model, "float32", "--enable-metrics")
    require_valid(config, deployment, read_model(str(model)))
    arguments = server_args(deployment, config)
    environment = {**cpu.environment(), **(variables or {})}
    with ServerProcess(arguments, environment=environment, log_path=log) as server:
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


def write_eagle(target: Path, folder: Path) -> None:
    """Write a one-layer EAGLE head with random weights: it drafts nonsense, and must do no harm."""
    import torch
    from safetensors.torch import save_file

    config = json.loads((target / "config.json").read_text())
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
