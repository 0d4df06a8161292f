"""What the drafter learns from, what chooses its weights, and what the demo shows never mix."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.demo_draft import edits
from tools.demo_draft.prompts import Prompt, demo_mails
from tools.train_demo_draft import HELD_OUT, TRAINING, demo_prompts, prompt_sets

#: SHA-256 of the texts that the shipped drafter learned from; see its card.
TRAINED_ON = "8539efcda521674a0a9a0ad288a4372ffd9da71100c87cb9dc6c8a6f9a2d7c96"
MAIL = re.compile(
    r"Write a short e-mail to (?:Mr|Ms)\. (?P<name>\w+): (?:his|her) order (?P<number>\d{5}) "
    r"\((?P<item>[a-z ]+)\) will arrive \d+ days late\."
)


@pytest.fixture(scope="module")
def sets() -> dict[str, tuple[Prompt, ...]]:
    """Every set of prompts that the shipped drafter was made with."""
    return prompt_sets()


def slots(prompts: tuple[Prompt, ...], slot: str) -> set[str]:
    """The values that one slot takes over mail prompts, each of which must be of the wording."""
    matches = [MAIL.fullmatch(prompt.text) for prompt in prompts]
    return {match[slot] for match in matches if match is not None} | {
        prompt.text for prompt, match in zip(prompts, matches, strict=True) if match is None
    }


def test_training_prompts_are_those_of_the_shipped_drafter(
    sets: dict[str, tuple[Prompt, ...]],
) -> None:
    """Nobody changes a word list or a seed without training anew."""
    texts = [prompt.text for name in TRAINING for prompt in sets[name]]
    assert hashlib.sha256(json.dumps(texts).encode()).hexdigest() == TRAINED_ON


def test_no_prompt_stands_in_two_groups(sets: dict[str, tuple[Prompt, ...]]) -> None:
    """Training, held-out and demo prompts have no text in common."""
    groups = [TRAINING, HELD_OUT, [name for name in sets if name.startswith("demo-")]]
    assert sorted(name for group in groups for name in group) == sorted(sets)
    texts = [{prompt.text for name in group for prompt in sets[name]} for group in groups]
    assert len(set.union(*texts)) == sum(map(len, texts))


@pytest.mark.parametrize("slot", ["name", "number", "item"])
def test_mails_of_two_groups_share_no_slot_value(
    slot: str, sets: dict[str, tuple[Prompt, ...]]
) -> None:
    """No surname, order number or item of the demo was seen in training or chose weights."""
    values = [slots(sets[name], slot) for name in ("mail", "held-out-mail", "demo-mail")]
    assert all(values)
    assert len(set.union(*values)) == sum(map(len, values))


def test_chat_is_in_no_training_set(sets: dict[str, tuple[Prompt, ...]]) -> None:
    """The class that the drafter must not fit is known to the demo alone."""
    assert {prompt.label for name in (*TRAINING, *HELD_OUT) for prompt in sets[name]} == {
        "mail",
        "edit",
    }


def test_shipped_mails_and_notices_are_the_generators() -> None:
    """What is not written by hand in the demo's prompt file is made by the tool's own seeds."""
    assert demo_prompts()["mail"] == demo_mails()
    notices = tuple(prompt for prompt in demo_prompts()["edit"] if "```" not in prompt.text)
    assert notices == edits.demo_edits()


@given(st.integers(0, 10_000))
def test_edits_name_a_word_of_the_text_and_fill_every_slot(seed: int) -> None:
    """Of the two words named, one is to be changed and stands in the text."""
    for prompt in edits._edits(seed, 4):
        asked, body = prompt.text.split("\n\n", 1)
        words = re.findall(r'"(\w+)"', asked)
        assert len(set(words)) == 2
        assert any(word in body for word in words)
        assert "{" not in prompt.text
