"""Prompts that ask for a notice again with one word changed.

Notices are put together from sentences and words, so that thousands differ. Those of the demo are
among none that were trained on, but made of the same sentences.
"""

from __future__ import annotations

import random
from typing import Final

from tools.demo_draft.prompts import Prompt

__all__ = ["demo_edits", "held_out_edits", "training_edits"]

EDIT_NEW_TOKENS: Final = 88
NUM_DEMO: Final = 24
_DEMO_SEED, _HELD_OUT_SEED, _TRAINING_SEED = 4, 5, 6

_SENTENCES: Final = (
    "The {who} of the {place} asks everybody to bring {thing} and a {noun} on {day}.",
    "On {day} the {place} opens at {hour}, one hour later than in {month}.",
    "{name} will show the new {noun}, which cost {number} euros and came from {town}.",
    "Since {month} the {noun} behind the {place} has been broken, and {name} cannot repair it.",
    "Whoever needs {thing} may ask {name} or the {who} before {hour}.",
    "The old {noun} was sold to a {who} from {town} for {number} euros.",
    "In {month} we walked from {town} to the {place} and found {thing} on the way.",
    "{name} wrote to the {who} that the {noun} must be {quality} and not too heavy.",
    "There were {number} visitors, a {quality} {noun}, and coffee with {thing} for all.",
    "A {quality} {noun} stood near the {place}, and nobody knew who had left it there.",
    "The road to {town} is closed until {day}, so take the path past the {place}.",
    "Children under {small} pay nothing; the {who} gives each of them {thing}.",
    "After {small} days of rain the {noun} was {quality}, and the {who} went home to {town}.",
    "Please tell {name} by {day} whether the {place} needs {thing} or another {noun}.",
)
_ASK: Final = (
    'Write this notice again word for word, but with "{new}" in place of "{old}".',
    'Copy the text below and replace "{old}" with "{new}".',
    'Repeat this paragraph. The only change: it says "{new}" instead of "{old}".',
    'Retype the letter exactly and change "{old}" to "{new}".',
    'Give this report back with "{old}" changed to "{new}". Leave all other words as they are.',
)
_SLOTS: Final = {
    "who": "mayor baker teacher captain doctor librarian farmer driver judge nurse pilot",
    "place": "harbour school theatre station museum bakery garden market bridge stadium mill",
    "thing": "apples blankets candles books tools flowers maps bread ropes shoes bottles seeds",
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "hour": "six seven eight nine ten eleven noon four five midnight",
    "month": "January March April May June July August October November December",
    "name": "Astrid Bruno Carmen Dmitri Esther Farid Greta Hugo Irina Jamal Luca Marta Nils",
    "noun": "engine piano boat ladder stove clock fence tractor roof window oven bell wagon pump",
    "town": "Bergen Lyon Malaga Krakow Trieste Aarhus Leiden Graz Cork Porto Tartu Turku Ghent",
    "quality": "green heavy quiet modern wooden bright rusty clean narrow golden simple dusty warm",
}


def demo_edits() -> tuple[Prompt, ...]:
    """The notices of the demo; the other edits of the demo are code and written by hand."""
    return _edits(_DEMO_SEED, NUM_DEMO)


def held_out_edits(count: int) -> tuple[Prompt, ...]:
    """Notices of which none is in training or in the demo."""
    return _edits(_HELD_OUT_SEED, count)


def training_edits(count: int) -> tuple[Prompt, ...]:
    """Notices to learn from."""
    return _edits(_TRAINING_SEED, count)


def _edits(seed: int, count: int) -> tuple[Prompt, ...]:
    generator = random.Random(seed)
    return tuple(_edit(generator) for _ in range(count))


def _edit(generator: random.Random) -> Prompt:
    chosen = generator.sample(_SENTENCES, generator.randint(4, 6))
    body = " ".join(sentence.format(**_fill(generator)) for sentence in chosen)
    old = generator.choice([word.strip(".,;") for word in body.split() if len(word) > 4])
    kinds = [slot for slot, words in _SLOTS.items() if old in words.split()]
    others = [word for word in _SLOTS[kinds[0] if kinds else "noun"].split() if word != old]
    new = generator.choice(others)
    ask = generator.choice(_ASK).format(old=old, new=new)
    return Prompt(f'{ask}\n\n"{body}"', "edit", EDIT_NEW_TOKENS)


def _fill(generator: random.Random) -> dict[str, str]:
    values = {slot: generator.choice(words.split()) for slot, words in _SLOTS.items()}
    numbers = {"number": generator.randint(100, 9999), "small": generator.randint(2, 60)}
    return values | {name: str(number) for name, number in numbers.items()}
