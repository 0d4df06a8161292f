"""Step times by drafting depth and batch size, and what follows from them. Pure."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autospec import schema
from autospec.config import SpecConfig
from autospec.errors import SchemaError
from autospec.evidence import StepTime, require
from autospec.profile import Profile

__all__ = ["Costs", "costs_of_profile", "drafting_depth", "load_costs"]


class Costs:
    """How long a step takes, drafting included.

    Between measured batch sizes times are linear; beyond them the nearest measured one holds, and
    with it the break-even.

    Attributes:
        version: rises when times change, which only those of a running server do.
    """

    version: int = 0

    def __init__(self, step_time_ms: Mapping[int, Mapping[float, float]]) -> None:
        """Check and keep a table.

        Args:
            step_time_ms: drafting depth -> batch size -> milliseconds; depth 0 is plain decoding.

        Raises:
            SchemaError: plain decoding is missing, or a value is out of range.
        """
        require(0 in step_time_ms, "step_time_ms", f"{sorted(step_time_ms)}", "given for depth 0")
        self._tables: dict[int, tuple[tuple[float, ...], tuple[float, ...]]] = {}
        for depth in sorted(step_time_ms):
            row = step_time_ms[depth]
            require(depth >= 0, "depth", depth, "at least 0")
            require(
                bool(row), f"step_time_ms[{depth}]", "empty", "given for one batch size or more"
            )
            for batch, time in row.items():
                where = f"step_time_ms[{depth}][{batch}]"
                require(batch > 0, f"batch size of {where}", batch, "above 0")
                require(math.isfinite(time) and time > 0, where, time, "a time above 0")
            batches = tuple(sorted(row))
            self._tables[depth] = (batches, tuple(row[batch] for batch in batches))

    @property
    def depths(self) -> tuple[int, ...]:
        """The drafting depths with step times, rising from 0."""
        return tuple(self._tables)

    def measured(self, depth: int) -> tuple[float, float]:
        """The smallest and the largest batch size with a step time at this depth.

        Raises:
            KeyError: nothing was measured at this depth.
        """
        batches, _ = self._tables[depth]
        return batches[0], batches[-1]

    def time_ms(self, depth: int, batch_size: float) -> float:
        """Time of one step.

        Raises:
            KeyError: nothing was measured at this depth.
        """
        batches, times = self._tables[depth]
        right = bisect_left(batches, batch_size)
        if right == 0:
            return times[0]
        if right == len(batches):
            return times[-1]
        share = (batch_size - batches[right - 1]) / (batches[right] - batches[right - 1])
        return times[right - 1] + share * (times[right] - times[right - 1])

    def break_even(self, depth: int, batch_size: float) -> float:
        """The accept length at which a depth makes as many tokens a second as plain decoding."""
        return self.time_ms(depth, batch_size) / self.time_ms(0, batch_size)


@dataclass(frozen=True, slots=True)
class _Document:
    """The file of a table."""

    step_time_ms: dict[int, dict[int, float]]
    schema: int = schema.SCHEMA


def load_costs(path: Path) -> Costs:
    """Read ``{"step_time_ms": {"0": {"1": 10.0, "8": 12.0}, "1": {...}}}``.

    Raises:
        SchemaError: the file cannot be read, or not as such a table.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SchemaError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise SchemaError(f"{path}: not JSON ({error})") from error
    document = schema.load(_Document, data, str(path))
    schema.check_version({"schema": document.schema}, str(path))
    try:
        return Costs({depth: dict(row.items()) for depth, row in document.step_time_ms.items()})
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from error


def costs_of_profile(profile: Profile, where: str) -> Costs:
    """The step times that a profile holds of plain decoding and of its best configuration's method.

    Rows are taken that differ from the best configuration in drafting depth alone. Several rows of
    one depth and batch size count by their steps.

    Args:
        profile: what was measured.
        where: its name, for errors.

    Raises:
        SchemaError: it holds no step times of plain decoding, or none of a method.
    """
    best = profile.verdict.best
    if best is None:
        raise SchemaError(f"{where}: verdict.best is missing: no speculation was measured")
    rows: dict[int, dict[float, list[StepTime]]] = {}
    for row in profile.step_times:
        if row.config.is_plain or _differ_in_depth(row.config, best):
            by_batch = rows.setdefault(drafting_depth(row.config), {})
            by_batch.setdefault(row.batch_size, []).append(row)
    if 0 not in rows or len(rows) < 2:
        raise SchemaError(
            f"{where}: step_times has rows of depth {sorted(rows)}, must have 0 and one more"
        )
    return Costs(
        {depth: {b: _mean(same) for b, same in row.items()} for depth, row in rows.items()}
    )


def drafting_depth(config: SpecConfig) -> int:
    """How many drafts in a row a configuration can get right."""
    if config.is_plain:
        return 0
    return config.num_steps or max(1, (config.num_draft_tokens or 1) - 1)


def _differ_in_depth(one: SpecConfig, other: SpecConfig) -> bool:
    """Whether two are of one method and, unless they are the same, chains."""
    if one.topk not in {None, 1}:
        return one == other
    shapeless = [replace(config, num_steps=None, num_draft_tokens=None) for config in (one, other)]
    return shapeless[0] == shapeless[1]


def _mean(rows: list[StepTime]) -> float:
    steps = sum(row.num_steps for row in rows)
    return sum(row.step_time_ms * row.num_steps for row in rows) / steps
