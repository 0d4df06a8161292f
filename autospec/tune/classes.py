"""Figures of one pass by class of its requests. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autospec import metrics
from autospec.measurement import RequestRecord, Run

__all__ = ["ClassFigures", "class_figures", "class_throughput", "labels"]


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """The requests of one class in one pass.

    Attributes:
        label: the class.
        requests: how many.
        output_throughput: tokens/s, as ``class_throughput`` defines it.
        accept_length: tokens per verify step, bonus token included; None without speculation.
        correct_histogram: verify steps by number of correct drafts.
    """

    label: str
    requests: int
    output_throughput: float
    accept_length: float | None = None
    correct_histogram: tuple[int, ...] = ()


def labels(runs: Sequence[Run]) -> tuple[str, ...]:
    """The classes of all requests of some passes, sorted; nothing where none has a label."""
    return tuple(sorted({r.label for run in runs for r in run.records if r.label}))


def class_throughput(records: Sequence[RequestRecord], concurrency: int) -> float:
    """Tokens/s that a load would get if all its requests fared like these.

    ``concurrency * tokens / (seconds in flight)``, both summed over the records. Over all requests
    of a closed loop this is its throughput, by Little's law; over those of one class it tells how
    fast that class is served among the others, whose batch it shares. 0 where none took time.
    """
    seconds = sum(record.end_s - record.start_s for record in records)
    tokens = sum(record.completion_tokens for record in records)
    return concurrency * tokens / seconds if seconds > 0 else 0.0


def class_figures(run: Run) -> tuple[ClassFigures, ...]:
    """One row a class, by name; requests without a label are in none."""
    return tuple(
        _figures(label, [r for r in run.records if r.label == label], run.concurrency)
        for label in labels([run])
    )


def _figures(label: str, records: Sequence[RequestRecord], concurrency: int) -> ClassFigures:
    return ClassFigures(
        label=label,
        requests=len(records),
        output_throughput=class_throughput(records, concurrency),
        accept_length=metrics.accept_length(records),
        correct_histogram=metrics.correct_histogram(records),
    )
