"""What every export starts from: the text with its notes, and the schedule over all batch sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from autospec.config import SpecConfig
from autospec.control.costs import drafting_depth
from autospec.errors import ConfigError
from autospec.profile import Profile

__all__ = [
    "ELSEWHERE",
    "Export",
    "Slot",
    "commented",
    "require_speculation",
    "slots",
    "slots_note",
]


#: What holds for every engine but the measured one.
ELSEWHERE: Final = (
    "measured with SGLang: another engine has other step times, so measure again before relying "
    "on it"
)


@dataclass(frozen=True, slots=True)
class Export:
    """A profile in another form.

    Attributes:
        text: what goes into the file.
        notes: what the form cannot express, and how the file is used, a sentence each.
    """

    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Slot:
    """A range of batch sizes and the draft length that was best there.

    Attributes:
        first: least batch size.
        last: greatest; None in the last slot, which has no end.
        depth: drafts a step, 0 for plain decoding.
    """

    first: int
    last: int | None
    depth: int


def require_speculation(profile: Profile, form: str) -> SpecConfig:
    """The configuration that the profile deploys.

    Raises:
        ConfigError: it deploys plain decoding, for which the form has nothing to say.
    """
    if profile.choice.config.is_plain:
        raise ConfigError(
            f"{form} describes speculation, but the profile deploys plain decoding: "
            f"{profile.verdict.reason}"
        )
    return profile.choice.config


def slots(profile: Profile) -> tuple[Slot, ...]:
    """The measured schedule over all batch sizes, neighbours of one depth made one.

    A batch size between two measured loads takes the depth of the one that is nearer by ratio: step
    times and acceptance change with the logarithm of the load rather than with the load. Without
    a schedule the deployed depth holds everywhere.
    """
    measured = sorted(profile.schedule.items()) or [(1, drafting_depth(profile.choice.config))]
    firsts = [1, *(math.isqrt(low * high) + 1 for (low, _), (high, _) in pairwise(measured))]
    starts: list[tuple[int, int]] = []
    for first, (_, depth) in zip(firsts, measured, strict=True):
        if not starts or starts[-1][1] != depth:
            starts.append((first, depth))
    lasts = [first - 1 for first, _ in starts[1:]]
    return tuple(
        Slot(first, last, depth)
        for (first, depth), last in zip(starts, [*lasts, None], strict=True)
    )


def slots_note(profile: Profile) -> str:
    """How far the schedule rests on measurements."""
    loads = ", ".join(map(str, sorted(profile.schedule)))
    return (
        f"the schedule was measured at {loads} requests in flight; "
        "between them the nearer one holds, above them the last"
    )


def commented(lines: list[str], text: str) -> str:
    """A YAML document under lines of comment."""
    return "".join(f"# {line}\n" for line in lines) + text
