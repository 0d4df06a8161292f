"""The best configuration for each load and each class, beside the one deployed for all. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autospec import metrics
from autospec.breakdown import Winner
from autospec.config import PLAIN, SpecConfig
from autospec.evidence import Interval
from autospec.measure import stats
from autospec.measurement import Measurement, Run
from autospec.tune.classes import class_throughput, labels
from autospec.tune.objective import Figure
from autospec.tuning.points import interval, short
from autospec.tuning.pooled import LEAST_FREEDOM, Spread

__all__ = ["is_depth_of", "schedule", "winners"]

#: Chance that a row names a wrong winner or that one of its intervals misses, over all candidates.
_LEVEL: Final = 0.05
_SAME: Final = Interval(1.0, 1.0, 1.0)

#: (load, class): one of the two is None.
_Part = tuple[int | None, str | None]


@dataclass(slots=True)
class _Tally:
    """What is kept of each configuration's passes: logarithms of figures by part and repeat.

    Measurements are large and candidates many, so each is read once and let go.

    Attributes:
        figure: of a pass, for the winners by load.
    """

    figure: Figure
    _logs: dict[_Part, dict[SpecConfig, dict[int, float]]] = field(default_factory=dict)
    _lengths: dict[tuple[_Part, SpecConfig], float | None] = field(default_factory=dict)

    def add(self, measurement: Measurement) -> None:
        """Count the tune passes of one configuration."""
        runs = [r for r in measurement.runs if r.part == "tune" and r.request_rate is None]
        for level in sorted({run.concurrency for run in runs}):
            own = [run for run in runs if run.concurrency == level]
            self._keep((level, None), measurement.config, own, self.figure)
        for label in labels(runs):
            self._keep((None, label), measurement.config, runs, _of_class(label))
            records = [r for run in runs for r in run.records if r.label == label]
            self._lengths[(None, label), measurement.config] = metrics.accept_length(records)

    def parts(self) -> tuple[_Part, ...]:
        """Every load, then every class, in order."""
        return tuple(sorted(self._logs, key=lambda part: (part[0] or math.inf, part[1] or "")))

    def blocks(self, part: _Part, config: SpecConfig, other: SpecConfig) -> list[float]:
        """Log ratio of two configurations in each repeat that both have."""
        ours, theirs = (self._logs[part].get(each, {}) for each in (config, other))
        return [ours[repeat] - theirs[repeat] for repeat in sorted(ours.keys() & theirs.keys())]

    def configs(self, part: _Part) -> tuple[SpecConfig, ...]:
        """The configurations that have figures there, sorted."""
        return tuple(sorted(self._logs[part]))

    def accept_length(self, part: _Part, config: SpecConfig) -> float | None:
        """Over the class's requests."""
        length = self._lengths.get((part, config))
        return None if length is None else short(length)

    def _keep(self, part: _Part, config: SpecConfig, runs: Sequence[Run], figure: Figure) -> None:
        by_repeat: dict[int, list[float]] = {}
        for run in runs:
            if (value := figure(run)) > 0:
                by_repeat.setdefault(run.repeat, []).append(math.log(value))
        loads = len({run.concurrency for run in runs})
        whole = {n: statistics.fmean(row) for n, row in by_repeat.items() if len(row) == loads}
        if whole:
            self._logs.setdefault(part, {})[config] = whole


def winners(
    baseline: Measurement,
    candidates: Iterable[Measurement],
    choice: SpecConfig,
    figure: Figure,
    noise_floor: float = 0.0,
) -> tuple[Winner, ...]:
    """A row for each load and, where prompts have labels, for each class.

    Args:
        baseline: plain decoding.
        candidates: the others, the deployed one among them unless it is plain decoding.
        choice: what is deployed for all.
        figure: of a pass, for the winners by load; classes are compared by ``class_throughput``.
        noise_floor: absolute log ratio by which two launches of one configuration differ.

    Returns:
        Loads first, then classes; a part in which the deployed one has no figure is left out.
    """
    tally = _Tally(figure)
    tally.add(baseline)
    for measurement in candidates:
        tally.add(measurement)
    rows = (_winner(tally, part, choice, noise_floor) for part in tally.parts())
    return tuple(row for row in rows if row is not None)


def _winner(tally: _Tally, part: _Part, choice: SpecConfig, noise_floor: float) -> Winner | None:
    configs = tally.configs(part)
    if choice not in configs or PLAIN not in configs:
        return None
    spread = Spread.of(tally.blocks(part, c, PLAIN) for c in configs if not c.is_plain)
    if spread.freedom < LEAST_FREEDOM:
        return None
    level = _LEVEL / max(1, len(configs) - 1)

    def against(config: SpecConfig, other: SpecConfig) -> Interval | None:
        if config == other:
            return _SAME
        found = tally.blocks(part, config, other)
        return interval(spread.ratio(found, level, noise_floor)) if found else None

    leads = {config: lead for config in configs if (lead := against(config, choice)) is not None}
    best = max(leads, key=lambda config: (leads[config].value, config == choice))
    if leads[best].low <= 1:
        best = choice
    vs_plain, choice_vs_plain = against(best, PLAIN), against(choice, PLAIN)
    if vs_plain is None or choice_vs_plain is None:
        return None
    return Winner(
        config=best,
        vs_plain=vs_plain,
        choice_vs_plain=choice_vs_plain,
        vs_choice=leads[best],
        concurrency=part[0],
        label=part[1],
        accept_length=tally.accept_length(part, best),
    )


def _of_class(label: str) -> Callable[[Run], float]:
    def figure(run: Run) -> float:
        return class_throughput([r for r in run.records if r.label == label], run.concurrency)

    return figure


def schedule(
    best: SpecConfig | None, ratios: Mapping[int, stats.Ratio], rows: Iterable[Winner]
) -> dict[int, int]:
    """Depth of drafting at each load, 0 for plain decoding.

    The best configuration's depth where it was faster. A chain's depth can be changed while a
    server runs, so where another depth of the same chain was clearly ahead, that one.

    Args:
        best: the best configuration; None for plain decoding everywhere.
        ratios: its ratio to plain decoding at each load.
        rows: winners by load, beside ``best``, among plain decoding and the other depths of the
            same chain (``is_depth_of``).
    """
    ahead = {row.concurrency: row for row in rows if row.config != best}
    depths: dict[int, int] = {}
    for level, ratio in ratios.items():
        row = ahead.get(level)
        config = row.config if row is not None else best if ratio.value > 1 else None
        depths[level] = 0 if best is None or config is None else _depth(config)
    return depths


def is_depth_of(config: SpecConfig, best: SpecConfig) -> bool:
    """Whether a configuration is another depth of the same chain."""
    return (config.algorithm, config.draft_model, config.topk, config.options) == (
        best.algorithm,
        best.draft_model,
        1,
        best.options,
    ) and best.topk == 1


def _depth(config: SpecConfig) -> int:
    if config.is_plain:
        return 0
    return config.num_steps or (config.num_draft_tokens or 1) - 1
