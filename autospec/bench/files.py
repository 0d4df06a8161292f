"""Two results that ``autospec bench -o`` kept, side by side."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path

from autospec import schema
from autospec.bench.fairness import check_fairness
from autospec.bench.result import ArmResult, BenchResult, CompareResult, LoadFigures, Made
from autospec.errors import MismatchError, SchemaError
from autospec.measure.sequential import StoppingRule
from autospec.tuning.points import interval

__all__ = ["compare_results", "is_result", "read_result"]


def is_result(text: str) -> bool:
    """Whether the text is the path of a kept result, there or not."""
    return Path(text).suffix.lower() == ".json"


def read_result(path: str) -> BenchResult:
    """Read what ``autospec bench -o`` wrote; its arm is called by the path.

    Raises:
        SchemaError: no such file, or not such a result; with the path of the field.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SchemaError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise SchemaError(f"{path}: not JSON") from error
    if not isinstance(document, dict):
        raise SchemaError(f"{path}: must be a mapping, as bench -o writes it")
    schema.check_version(document, path)
    result = schema.load(BenchResult, document, path)
    subject = dataclasses.replace(result.arm.subject, name=path)
    return dataclasses.replace(result, arm=dataclasses.replace(result.arm, subject=subject))


def compare_results(
    a: BenchResult, b: BenchResult, command: str, *, force: bool = False
) -> CompareResult:
    """Compare two results on the same prompts; passes are paired by their repeat.

    What happened to the machine between the two is in the ratio, for nothing alternated.

    Args:
        a: the first.
        b: the second.
        command: how the user began it.
        force: compare what differs in more than it should.

    Raises:
        MismatchError: other prompts, or an unfair difference, naming the field.
    """
    fairness = check_fairness(a.arm.subject, b.arm.subject, force=force)
    _require_same_prompts(a, b)
    shared = _shared_loads(a.arm, b.arm)
    pairs = min(len(load.throughputs) for load in (*shared[0], *shared[1]))
    figures = {
        place: (mine.throughputs[:pairs], other.throughputs[:pairs])
        for place, (mine, other) in enumerate(zip(*shared, strict=True))
    }
    look = StoppingRule(pairs, pairs).look_levels(figures)
    names = [load.load for load in shared[0]]
    return CompareResult(
        a=dataclasses.replace(a.arm, loads=shared[0]),
        b=dataclasses.replace(b.arm, loads=shared[1]),
        workload=a.workload,
        made=Made(command, datetime.now(UTC).isoformat(timespec="seconds"), a.made.seed, 0.0),
        ratio=interval(look.ratio),
        decision=look.decision,
        reason=f"measured {a.made.created} and {b.made.created}, not in turns",
        loads={names[place]: interval(ratio) for place, ratio in look.levels.items()},
        pairs=pairs,
        order="none",
        unfair=fairness.unfair,
        differs=fairness.differs,
        slo=a.slo if a.slo == b.slo else None,
    )


def _require_same_prompts(a: BenchResult, b: BenchResult) -> None:
    for name, mine, other in (
        ("prompts", a.workload.fingerprint, b.workload.fingerprint),
        ("seed", a.made.seed, b.made.seed),
        ("split", a.workload.prompts, b.workload.prompts),
    ):
        if mine != other:
            raise MismatchError(
                f"{name} of {a.arm.subject.name} and {b.arm.subject.name} differ "
                f"({mine!r} and {other!r}): the ratio of their throughputs would mean nothing"
            )


def _shared_loads(
    a: ArmResult, b: ArmResult
) -> tuple[tuple[LoadFigures, ...], tuple[LoadFigures, ...]]:
    """The loads by concurrency that both have, with the same requests."""
    others = {load.load: load for load in b.loads}
    shared = [
        load
        for load in a.loads
        if load.load.isdigit()
        and load.load in others
        and others[load.load].requests == load.requests
    ]
    if not shared:
        raise MismatchError(
            f"{a.subject.name} and {b.subject.name} have no concurrency with as many requests a "
            "pass in common"
        )
    return tuple(shared), tuple(others[load.load] for load in shared)
