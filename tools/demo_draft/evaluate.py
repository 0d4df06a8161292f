"""Which tokens of the target's greedy answers the drafter would have said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from transformers import LlamaForCausalLM

from tools.demo_draft.model import Example, answer_states, logits_of

__all__ = ["hits"]

_BATCH: Final = 16


@torch.inference_mode()
def hits(drafter: LlamaForCausalLM, examples: Sequence[Example]) -> list[list[bool]]:
    """For each answer, whether the drafter holds each of its tokens most likely."""
    result = []
    embedding = drafter.get_input_embeddings().weight
    for begin in range(0, len(examples), _BATCH):
        batch = examples[begin : begin + _BATCH]
        guesses = logits_of(answer_states(drafter, batch), embedding).argmax(-1).tolist()
        for example in batch:
            own, guesses = guesses[: len(example.answer)], guesses[len(example.answer) :]
            result.append([a == b for a, b in zip(own, example.answer, strict=True)])
    return result
