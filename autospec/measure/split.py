"""Split a workload, once and by seed, into parts that never share a prompt."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from autospec.errors import WorkloadError
from autospec.measure.prompt import Prompt
from autospec.measure.workload import Workload

__all__ = ["Part", "Parts", "set_aside", "split"]

T = TypeVar("T")

#: Share of the prompts that only warm the server up.
_WARMUP_SHARE = 0.1
_LEAST_WARMUP = 2


@dataclass(frozen=True, slots=True)
class Part:
    """Prompts for one purpose, their classes mixed evenly from first to last."""

    name: str
    prompts: tuple[Prompt, ...]

    def slice(self, repeat: int, count: int) -> tuple[Prompt, ...]:
        """The prompts of one pass: the same for the same repeat, whoever asks; none of them twice.

        Repeats walk through the part, ``count`` prompts at a time, and begin again at its end.

        Raises:
            WorkloadError: the part holds fewer than ``count`` prompts.
        """
        size = len(self.prompts)
        if count > size:
            raise WorkloadError(f"part {self.name} has {size} prompts, a pass needs {count}")
        return tuple(self.prompts[(repeat * count + place) % size] for place in range(count))


@dataclass(frozen=True, slots=True)
class Parts:
    """A workload's parts.

    Attributes:
        workload: all of it.
        warmup: warms a server up.
        tune: is searched on.
        confirm: is held out.
        corpus: prompts whose answers a drafter may know; none unless ``set_aside`` made it.
    """

    workload: Workload
    warmup: Part
    tune: Part
    confirm: Part
    corpus: Part = Part("corpus", ())

    @property
    def all(self) -> tuple[Part, ...]:
        """Every part that has prompts."""
        return tuple(p for p in (self.warmup, self.corpus, self.tune, self.confirm) if p.prompts)

    def named(self, name: str) -> Part:
        """The part that may be measured under this name.

        Raises:
            WorkloadError: the name is neither ``tune`` nor ``confirm``.
        """
        for part in (self.tune, self.confirm):
            if part.name == name:
                return part
        raise WorkloadError(f"part {name!r} cannot be measured, only tune and confirm can")


def split(workload: Workload, seed: int, *, max_concurrency: int) -> Parts:
    """Split a workload into warm-up, tune and confirm parts.

    A tenth warms up (at least 2 prompts, at most two a slot); the rest is halved. Every class is
    spread over the parts, and over each part's order, in proportion to its size.

    Args:
        workload: the prompts.
        seed: the same seed gives the same parts.
        max_concurrency: the most requests that a pass will keep in flight.

    Raises:
        WorkloadError: too few prompts; tune and confirm need two a slot each, warm-up two.
    """
    total, least = len(workload.prompts), 2 * max_concurrency
    needed = _LEAST_WARMUP + 2 * least
    if total < needed:
        raise WorkloadError(
            f"{workload.name}: has {total} different prompts, {needed} are needed for concurrency"
            f" {max_concurrency}: {_LEAST_WARMUP} to warm up, {least} each to tune and to confirm"
        )
    warmup = min(max(_LEAST_WARMUP, round(total * _WARMUP_SHARE)), least, total - 2 * least)
    confirm = (total - warmup) // 2
    sizes = {"warmup": warmup, "tune": total - warmup - confirm, "confirm": confirm}
    dealt = _interleave([[name] * size for name, size in sizes.items()])
    by_class = _by_class(workload.prompts)
    for prompts in by_class:
        random.Random(seed).shuffle(prompts)  # noqa: S311 - repeatable on purpose, hides no secret
    # Classes lie one behind the other here, so that each is dealt over all parts in proportion.
    ordered = [prompt for prompts in by_class for prompt in prompts]
    parts: dict[str, list[Prompt]] = {name: [] for name in sizes}
    for name, prompt in zip(dealt, ordered, strict=True):
        parts[name].append(prompt)
    warm, tune, conf = (
        Part(name, tuple(_interleave(_by_class(prompts)))) for name, prompts in parts.items()
    )
    return Parts(workload, warmup=warm, tune=tune, confirm=conf)


def set_aside(parts: Parts, share: float, *, max_concurrency: int) -> Parts:
    """Take a share of the tune part away, so that a drafter may be given the answers to it.

    Of every class as large a share. What is measured, tune and confirm, then holds no prompt whose
    answer any arm was given.

    Args:
        parts: as ``split`` made them.
        share: of the tune part, above 0 and below 1.
        max_concurrency: the most requests that a pass will keep in flight.

    Raises:
        WorkloadError: tune would keep fewer prompts than two a slot.
    """
    taken: list[Prompt] = []
    for prompts in _by_class(parts.tune.prompts):
        taken += prompts[: round(share * len(prompts))]
    kept = [prompt for prompt in parts.tune.prompts if prompt not in taken]
    if len(kept) < 2 * max_concurrency or not taken:
        raise WorkloadError(
            f"{parts.workload.name}: part tune has {len(parts.tune.prompts)} prompts; with "
            f"{len(taken)} set aside for a corpus it keeps {len(kept)}, must keep "
            f"{2 * max_concurrency} and set aside at least 1"
        )
    return replace(
        parts,
        tune=Part("tune", tuple(_interleave(_by_class(kept)))),
        corpus=Part("corpus", tuple(_interleave(_by_class(taken)))),
    )


def _by_class(prompts: Sequence[Prompt]) -> list[list[Prompt]]:
    """The prompts of each class, in a fixed order of classes; without a label is a class too."""
    classes: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        classes.setdefault(prompt.label or "", []).append(prompt)
    return [classes[label] for label in sorted(classes)]


def _interleave(groups: Sequence[Sequence[T]]) -> list[T]:
    """Merge groups so that each is spread evenly over the whole; order within a group is kept.

    Item i of a group of n stands at (i + 1/2) / n of the whole, so every beginning of the result
    holds each group's share of it to within half an item a group.
    """
    placed = [
        ((place + 0.5) / len(group), number, item)
        for number, group in enumerate(groups)
        for place, item in enumerate(group)
    ]
    return [item for _, _, item in sorted(placed, key=lambda entry: entry[:2])]
