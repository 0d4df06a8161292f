"""The prompts that the drafter learns from and the late-order mails of the demo; all from seeds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tools.demo_draft.words import ITEMS, NUM_DEMO, NUM_HELD_OUT, SURNAMES

__all__ = ["Prompt", "demo_mails", "held_out_mails", "training_mails"]

MAIL_NEW_TOKENS: Final = 72
_DEMO_SEED, _HELD_OUT_SEED, _TRAINING_SEED = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Prompt:
    """One user message, its class and its longest answer in tokens."""

    text: str
    label: str
    max_new_tokens: int


def demo_mails() -> tuple[Prompt, ...]:
    """One mail prompt for each surname and each item that only the demo uses."""
    generator = random.Random(_DEMO_SEED)
    names = generator.sample(SURNAMES[:NUM_DEMO], NUM_DEMO)
    items = generator.sample(ITEMS[:NUM_DEMO], NUM_DEMO)
    return tuple(
        _mail(generator, name, item, range(80_000, 100_000))
        for name, item in zip(names, items, strict=True)
    )


def held_out_mails(count: int) -> tuple[Prompt, ...]:
    """Mail prompts of which neither training nor the demo shares a surname or an item."""
    end = NUM_DEMO + NUM_HELD_OUT
    words = SURNAMES[NUM_DEMO:end], ITEMS[NUM_DEMO:end]
    return _mails(_HELD_OUT_SEED, count, *words, range(70_000, 80_000))


def training_mails(count: int) -> tuple[Prompt, ...]:
    """Mail prompts to learn from."""
    begin = NUM_DEMO + NUM_HELD_OUT
    return _mails(_TRAINING_SEED, count, SURNAMES[begin:], ITEMS[begin:], range(10_000, 70_000))


def _mails(
    seed: int, count: int, names: Sequence[str], items: Sequence[str], numbers: range
) -> tuple[Prompt, ...]:
    generator = random.Random(seed)
    return tuple(
        _mail(generator, generator.choice(names), generator.choice(items), numbers)
        for _ in range(count)
    )


def _mail(generator: random.Random, name: str, item: str, numbers: range) -> Prompt:
    title, whose = generator.choice((("Mr.", "his"), ("Ms.", "her")))
    number, days = generator.choice(numbers), generator.randint(2, 14)
    return Prompt(
        f"Write a short e-mail to {title} {name}: {whose} order {number} ({item}) will arrive "
        f"{days} days late.",
        "mail",
        MAIL_NEW_TOKENS,
    )
