"""What makes a study's figures less trustworthy, a line each. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from autospec.measurement import Measurement

__all__ = ["doubts"]


def doubts(arms: Iterable[Measurement]) -> tuple[str, ...]:
    """Warnings of all arms, each with its arm; those that differ in numbers only are one line."""
    first: dict[tuple[str, str], str] = {}
    counts: Counter[tuple[str, str]] = Counter()
    passes: Counter[str] = Counter()
    for arm in arms:
        label = arm.config.label
        passes[label] += len(arm.runs)
        of_passes = [warning for run in arm.runs for warning in run.warnings]
        of_launches = [warning for warning in arm.warnings if warning not in of_passes]
        for warning in of_passes + of_launches:
            kind = label, re.sub(r"\d+(\.\d+)?", "0", warning)
            first.setdefault(kind, warning)
            counts[kind] += 1
    return tuple(
        f"{kind[0]}: {warning}"
        + (f" ({counts[kind]} of {passes[kind[0]]} passes)" if counts[kind] > 1 else "")
        for kind, warning in first.items()
    )
