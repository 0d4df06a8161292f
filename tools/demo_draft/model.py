"""The drafter itself: a small Llama that reads and speaks the target's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from tools.demo_draft.prompts import Prompt
from tools.demo_draft.targets import answers

__all__ = ["Example", "answer_states", "load_examples", "logits_of", "new_drafter"]


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids of one prompt and of its answer."""

    prompt: list[int]
    answer: list[int]


def load_examples(work: Path, name: str, prompts: Sequence[Prompt]) -> list[Example]:
    """A set's prompts with the target's answers."""
    return [Example(**made) for made in answers(work, name, prompts)]


def new_drafter(target: Path, seed: int) -> LlamaForCausalLM:
    """A two-layer Llama on the principal components of the target's embedding."""
    torch.manual_seed(seed)
    source = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    drafter = LlamaForCausalLM(drafter_config(source.config))
    embedding = source.get_input_embeddings().weight.detach()
    centred = embedding - embedding.mean(0)
    _, vectors = torch.linalg.eigh(centred.T @ centred)
    width = drafter.config.hidden_size
    drafter.get_input_embeddings().weight.data = (centred @ vectors[:, -width:]).contiguous()
    drafter.tie_weights()
    return drafter


def drafter_config(target: LlamaConfig) -> LlamaConfig:
    """The drafter's shape; whatever decides what a token is comes from the target."""
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=target.vocab_size,
        hidden_size=256,
        intermediate_size=640,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=target.max_position_embeddings,
        rope_parameters=target.rope_parameters,
        rms_norm_eps=target.rms_norm_eps,
        bos_token_id=target.bos_token_id,
        eos_token_id=target.eos_token_id,
        pad_token_id=target.pad_token_id,
        tie_word_embeddings=True,
        dtype="bfloat16",
    )


def answer_states(drafter: LlamaForCausalLM, batch: Sequence[Example]) -> torch.Tensor:
    """The drafter's last hidden state at each place of the answers, answer by answer."""
    texts = [example.prompt + example.answer for example in batch]
    longest = max(map(len, texts))
    # Padding stands behind, where a causal model does not look.
    ids = torch.tensor([text + [0] * (longest - len(text)) for text in texts])
    with torch.autocast("cpu", torch.bfloat16):
        hidden = drafter.model(ids).last_hidden_state
    chosen = []
    for row, example in zip(hidden, batch, strict=True):
        first = len(example.prompt) - 1
        chosen.append(row[first : first + len(example.answer)])
    return torch.cat(chosen)


def logits_of(states: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
    """Logits of the tokens whose rows of the tied embedding are given."""
    with torch.autocast("cpu", torch.bfloat16):
        logits = functional.linear(states, embedding)
    return logits.float()
