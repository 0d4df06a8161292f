"""Traces: what a server's drafts were worth, step by step. JSON lines, read and written.

The first line is a header, ``{"schema": 1, "algorithm": "EAGLE3", "depth": 5, "topk": 1}``. Each
further line is one step, ``{"t": 12.31, "batch": 2, "correct": [0, 4]}``: seconds since the trace
began, requests, and of each request how many drafts in a row were right at full depth. A step may
name the phase of the load that it belongs to, ``"phase": "collapse"``. Keys beside these are left
alone, so that a recorder may say more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from autospec.errors import SchemaError
from autospec.schema import SCHEMA, check_version, write_text

__all__ = ["Step", "Trace", "read_trace", "write_trace"]


class Step(NamedTuple):
    """One step of a server.

    Attributes:
        time_s: seconds since the trace began.
        correct: correct drafts of each request, at the trace's full depth.
        phase: the part of the load it belongs to.
    """

    time_s: float
    correct: tuple[int, ...]
    phase: str | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """What was recorded, or made.

    Attributes:
        algorithm: SGLang's name of the drafting method.
        depth: drafts a request at full depth.
        topk: branches per drafted level.
        steps: in order of time, at least one.
    """

    algorithm: str
    depth: int
    topk: int
    steps: tuple[Step, ...]


def read_trace(path: Path) -> Trace:
    """Read a trace.

    Raises:
        SchemaError: naming file, line and field.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SchemaError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise SchemaError(f"{path}: not UTF-8 at byte {error.start}") from error
    documents = _documents(path, lines)
    where, header = next(documents, (str(path), {}))
    check_version({"schema": SCHEMA, **header}, where)
    algorithm = header.get("algorithm")
    if not isinstance(algorithm, str):
        raise SchemaError(f"{where}: algorithm is {algorithm!r}, must be a method's name")
    depth = _count(header, "depth", where)
    topk = _count({"topk": 1, **header}, "topk", where)
    steps = tuple(_step(where, line, depth) for where, line in documents)
    if not steps:
        raise SchemaError(f"{path}: no step after the header, must be at least one")
    return Trace(algorithm, depth, topk, steps)


def write_trace(path: Path, trace: Trace) -> None:
    """Write a trace, atomically.

    Raises:
        StorageError: it could not be written; an older file is untouched.
    """
    write_text(path, "".join(f"{json.dumps(line)}\n" for line in _lines(trace)))


def _lines(trace: Trace) -> Iterable[dict[str, Any]]:
    yield {
        "schema": SCHEMA,
        "algorithm": trace.algorithm,
        "depth": trace.depth,
        "topk": trace.topk,
    }
    for step in trace.steps:
        line = {"t": step.time_s, "batch": len(step.correct), "correct": step.correct}
        yield line if step.phase is None else {**line, "phase": step.phase}


def _documents(path: Path, lines: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        try:
            data = json.loads(line)
        except ValueError as error:
            raise SchemaError(f"{where}: not JSON ({error})") from error
        if not isinstance(data, dict):
            raise SchemaError(f"{where}: must be a mapping, is {type(data).__name__}")
        yield where, data


def _step(where: str, line: dict[str, Any], depth: int) -> Step:
    time, batch, correct = line.get("t"), line.get("batch"), line.get("correct")
    phase = line.get("phase")
    if isinstance(time, bool) or not isinstance(time, int | float) or not math.isfinite(time):
        raise SchemaError(f"{where}: t is {time!r}, must be a time in seconds")
    if not isinstance(correct, list) or not correct:
        raise SchemaError(f"{where}: correct must be a list with one number a request")
    for value in correct:
        if type(value) is not int or not 0 <= value <= depth:
            raise SchemaError(f"{where}: correct has {value!r}, must be whole and 0 to {depth}")
    if type(batch) is not int or batch != len(correct):
        raise SchemaError(f"{where}: batch is {batch!r}, but correct has {len(correct)} requests")
    if phase is not None and not isinstance(phase, str):
        raise SchemaError(f"{where}: phase is {phase!r}, must be a name")
    return Step(float(time), tuple(correct), phase)


def _count(header: dict[str, Any], name: str, where: str) -> int:
    value = header.get(name)
    if type(value) is not int or value < 1:
        raise SchemaError(f"{where}: {name} is {value!r}, must be a whole number above 0")
    return value
