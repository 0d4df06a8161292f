"""The drafter's training: it learns to say what the target says next."""

from __future__ import annotations

import hashlib
import io
import json
import math
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import torch
from torch.nn import functional
from transformers import LlamaForCausalLM

from tools.demo_draft.evaluate import hits
from tools.demo_draft.figures import agreement
from tools.demo_draft.files import write_atomically
from tools.demo_draft.model import Example, answer_states, logits_of
from tools.demo_draft.plan import Plan

__all__ = ["train"]

#: Tokens of a loss that no answer has.
_SAMPLE: Final = 2048


def train(
    drafter: LlamaForCausalLM,
    examples: Sequence[Example],
    held_out: Mapping[str, Sequence[Example]],
    plan: Plan,
    work: Path,
) -> dict[str, float]:
    """Train to the plan's end, from the last checkpoint on if there is one.

    Returns:
        Held-out top-1 agreement by class of the weights that were best on average; the drafter
        has these weights.
    """
    optimizer = _optimizer(drafter, plan)
    vocabulary = _Vocabulary(examples, drafter.config.vocab_size, plan.seed)
    checkpoint = work / f"checkpoint-{_digest(examples, plan)}.pt"
    state = _resume(checkpoint, drafter, optimizer)
    began, first = time.monotonic(), state.step
    for step, batch in _batches(examples, plan, first):
        for group in optimizer.param_groups:
            group["lr"] = group["full_rate"] * _schedule(step, plan)
        loss = _loss(drafter, batch, vocabulary, step)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % plan.save_every == 0 or step + 1 == plan.steps:
            figures = {
                name: round(agreement(hits(drafter, rest)), 4) for name, rest in held_out.items()
            }
            pace = (time.monotonic() - began) / (step + 1 - first)
            sys.stderr.write(
                f"step {step + 1} of {plan.steps}, {pace:.2f} s each: loss {loss.item():.3f}, "
                f"held-out agreement {json.dumps(figures)}\n"
            )
            state.step = step + 1
            state.note(drafter, figures)
            _save(checkpoint, state, drafter, optimizer)
    drafter.load_state_dict(state.best)
    return state.figures


class _Vocabulary:
    """The tokens that a loss is reckoned over: all that stand in an answer, and some others.

    The full softmax costs most of an update. A sample of the tokens that no answer has stands
    for all of these, each counted as often as it stands for (Jean et al. 2015).
    """

    def __init__(self, examples: Sequence[Example], size: int, seed: int) -> None:
        named = {token for example in examples for token in example.answer}
        mask = torch.zeros(size, dtype=torch.bool)
        mask[sorted(named)] = True
        self._named, self._others = mask.nonzero()[:, 0], (~mask).nonzero()[:, 0]
        #: Place of a token among those drawn; only named tokens have one.
        self.places = mask.cumsum(0) - 1
        self._seed = seed

    def draw(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids, named ones first, and the logarithm of how many each stands for."""
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        count = min(_SAMPLE, len(self._others))
        drawn = torch.randperm(len(self._others), generator=generator)[:count]
        weights = torch.zeros(len(self._named) + count)
        if count:
            weights[len(self._named) :] = math.log(len(self._others) / count)
        return torch.cat([self._named, self._others[drawn]]), weights


def _loss(
    drafter: LlamaForCausalLM, batch: Sequence[Example], vocabulary: _Vocabulary, step: int
) -> torch.Tensor:
    """Cross-entropy of the answers' tokens."""
    tokens, weights = vocabulary.draw(step)
    embedding = drafter.get_input_embeddings().weight[tokens]
    logits = logits_of(answer_states(drafter, batch), embedding) + weights
    truth = torch.tensor([token for example in batch for token in example.answer])
    return functional.cross_entropy(logits, vocabulary.places[truth])


def _batches(
    examples: Sequence[Example], plan: Plan, first: int
) -> Iterator[tuple[int, list[Example]]]:
    """Batches from number ``first`` on, each pass over the examples in an order of its own."""
    each = max(1, len(examples) // plan.batch)
    for step in range(first, plan.steps):
        epoch, place = divmod(step, each)
        order = list(range(len(examples)))
        random.Random(plan.seed * 1000 + epoch).shuffle(order)
        chosen = order[place * plan.batch : (place + 1) * plan.batch]
        yield step, [examples[i] for i in chosen]


def _schedule(step: int, plan: Plan) -> float:
    warm = min(1.0, (step + 1) / 30)
    return warm * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / plan.steps)))


def _optimizer(drafter: LlamaForCausalLM, plan: Plan) -> torch.optim.AdamW:
    embedding = drafter.get_input_embeddings().weight
    layers = [weight for weight in drafter.parameters() if weight is not embedding]
    return torch.optim.AdamW(
        [
            {"params": layers, "full_rate": plan.rate, "weight_decay": 0.01},
            {"params": [embedding], "full_rate": plan.rate / 3, "weight_decay": 0.0},
        ],
        lr=plan.rate,
        betas=(0.9, 0.98),
    )


@dataclass(slots=True)
class _State:
    """What a checkpoint holds beside the drafter and the optimizer.

    Attributes:
        step: updates made.
        mean: best mean of the held-out agreements so far.
        figures: these agreements.
        best: the weights that had them.
    """

    step: int = 0
    mean: float = -1.0
    figures: dict[str, float] = field(default_factory=dict)
    best: dict[str, torch.Tensor] = field(default_factory=dict)

    def note(self, drafter: LlamaForCausalLM, figures: dict[str, float]) -> None:
        """Keep the drafter's weights if they are the best."""
        mean = sum(figures.values()) / len(figures)
        if mean > self.mean:
            self.mean, self.figures = mean, figures
            self.best = {name: weight.clone() for name, weight in drafter.state_dict().items()}


def _digest(examples: Sequence[Example], plan: Plan) -> str:
    """What a checkpoint belongs to."""
    whole = json.dumps([asdict(plan), [asdict(example) for example in examples]])
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


def _resume(path: Path, drafter: LlamaForCausalLM, optimizer: torch.optim.AdamW) -> _State:
    if not path.exists():
        return _State()
    kept = torch.load(path, weights_only=True)
    drafter.load_state_dict(kept["drafter"])
    optimizer.load_state_dict(kept["optimizer"])
    return _State(**kept["state"])


def _save(
    path: Path, state: _State, drafter: LlamaForCausalLM, optimizer: torch.optim.AdamW
) -> None:
    kept = {
        "drafter": drafter.state_dict(),
        "optimizer": optimizer.state_dict(),
        "state": asdict(state),
    }
    file = io.BytesIO()
    torch.save(kept, file)
    write_atomically(path, file.getvalue())
