"""Published tables of throughput by method and draft length, as search problems."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from autospec.config import PLAIN, SpecConfig
from autospec.errors import SchemaError
from autospec.tune.problems import Problem, Result
from autospec.tune.seen import LoadSeen, Seen

__all__ = ["read_panels"]

_NEEDED: Final = ("target", "method", "dataset", "n_draft", "baseline_tok_s", "tok_s")
_POSITION: Final = re.compile(r"pos(\d+)")

Row = Mapping[str, str]


def read_panels(path: Path) -> tuple[Problem, ...]:
    """Read a table; each target and dataset is one problem.

    Its columns: ``target, method, dataset, n_draft, baseline_tok_s, tok_s`` and, where known,
    ``accept_length`` and ``pos1, pos2, ...``. An empty ``tok_s`` is an arm that does not run.

    Raises:
        SchemaError: no such file, a missing column, or a wrong field, with its line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"{path}: cannot be read ({error})") from error
    reader = csv.DictReader(text.splitlines())
    for name in _NEEDED:
        if name not in (reader.fieldnames or ()):
            raise SchemaError(f"{path}: has no column {name!r}, needed are {', '.join(_NEEDED)}")
    groups: dict[tuple[str, str], list[tuple[str, Row]]] = {}
    for row in reader:
        where = f"{path}, line {reader.line_num}"
        if None in row or None in row.values():
            raise SchemaError(f"{where}: must have {len(reader.fieldnames or ())} fields")
        groups.setdefault((row["target"], row["dataset"]), []).append((where, row))
    if not groups:
        raise SchemaError(f"{path}: has no rows")
    return tuple(_problem(f"{key[0]} {key[1]}", rows) for key, rows in groups.items())


def _problem(name: str, rows: list[tuple[str, Row]]) -> Problem:
    baseline = _number(*rows[0], "baseline_tok_s")
    truth: dict[SpecConfig, float | None] = {PLAIN: baseline}
    results = {PLAIN: Result(baseline, Seen((LoadSeen(1, baseline),)))}
    labels: dict[SpecConfig, str] = {}
    algorithms: dict[str, str] = {}
    for where, row in rows:
        if _number(where, row, "baseline_tok_s") != baseline:
            raise SchemaError(
                f"{where}: baseline_tok_s is {row['baseline_tok_s']!r}, must be {baseline:g} as "
                "in the other rows of its target and dataset"
            )
        arm = _arm(where, row, algorithms)
        if arm in truth:
            raise SchemaError(f"{where}: {row['method']} with {row['n_draft']} drafts comes twice")
        labels[arm] = f"{row['method']} n={row['n_draft']}"
        results[arm] = _result(where, row)
        truth[arm] = results[arm].throughput
    return Problem(name, truth, lambda config, _seed: results[config], labels)


def _arm(where: str, row: Row, algorithms: dict[str, str]) -> SpecConfig:
    drafts = _number(where, row, "n_draft")
    if drafts != int(drafts):
        raise SchemaError(f"{where}: n_draft is {row['n_draft']!r}, must be a whole number")
    # Names of methods are the table's own: numbered, so that any name will do.
    algorithm = algorithms.setdefault(row["method"], f"METHOD{len(algorithms) + 1}")
    return SpecConfig(algorithm, num_steps=int(drafts), topk=1, num_draft_tokens=int(drafts) + 1)


def _result(where: str, row: Row) -> Result:
    if not row["tok_s"].strip():
        return Result(None)
    throughput = _number(where, row, "tok_s")
    length = _number(where, row, "accept_length") if row.get("accept_length") else None
    if length is not None and length < 1:
        raise SchemaError(f"{where}: accept_length is {length:g}, must be at least 1")
    rates = _rates(where, row)
    return Result(throughput, Seen((LoadSeen(1, throughput),), length, rates))


def _rates(where: str, row: Row) -> tuple[float, ...]:
    """Share of steps by position; one that is above the one before is rounding, and cut."""
    named = {int(found[1]): name for name in row if (found := _POSITION.fullmatch(name))}
    rates: list[float] = []
    for position in sorted(named):
        text = row[named[position]].strip()
        if not text or position > _number(where, row, "n_draft"):
            break
        rate = _number(where, row, named[position], least=0.0)
        if rate > 1:
            raise SchemaError(f"{where}: {named[position]} is {text!r}, must be at most 1")
        rates.append(min([rate, *rates]))
    return tuple(rates)


def _number(where: str, row: Row, name: str, least: float | None = None) -> float:
    try:
        value = float(row[name])
    except ValueError:
        value = math.nan
    wrong = value <= 0 if least is None else value < least
    if not math.isfinite(value) or wrong:
        right = "above 0" if least is None else f"at least {least:g}"
        raise SchemaError(f"{where}: {name} is {row[name]!r}, must be a number {right}")
    return value
