"""A study of any size by formula, written by the real writer. Synthetic: nothing was measured."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

from autospec.config import PLAIN, SpecConfig
from autospec.evidence import (
    Environment,
    Failure,
    Interval,
    Point,
    Provenance,
    Target,
    WorkloadSummary,
)
from autospec.fidelity import Agreement, Lossless
from autospec.measure import stats
from autospec.measurement import Measurement, RequestRecord, Run, ServerDelta
from autospec.profile import STUDY_PROFILE, Choice, Profile, Verdict, save_profile
from autospec.tune.space import SearchSpace, enumerate_space
from autospec.tune.study import Study
from autospec.tuning import points

LOADS = (1, 8, 32)
LABEL = "synthetic: by formula, nothing was measured"
_REPEATS, _REQUESTS, _TOKENS = 3, 16, 64
_DRAFTS = (("STANDALONE", "/models/small"), ("EAGLE3", "/models/head"))
_RIGHT = {"STANDALONE": 0.72, "EAGLE3": 0.8, "NGRAM": 0.5}
_LOG = "\n".join(f"line {i} of a server that ran out of memory <&>" for i in range(60))


def write_study(folder: Path, trials: int, seed: int = 0, *, finished: bool = True) -> None:
    """A study with plain decoding, every 25th trial failed, and its profile."""
    rng = random.Random(seed)  # noqa: S311 -- seeded on purpose
    candidates = enumerate_space(SearchSpace(drafts=_DRAFTS), lambda _config: ()).candidates
    chosen = rng.sample(candidates, trials - 1)
    arms: list[Measurement] = []
    failed: list[SpecConfig] = []
    with Study.create(folder, {"label": LABEL}) as study:
        for place, config in enumerate([PLAIN, *chosen]):
            number = study.start(config, "tune", f"{LABEL}; draw {place} of {trials}")
            if place % 25 == 24:
                failed.append(config)
                study.fail(number, "ran out of memory", _LOG, 40.0)
                continue
            arms.append(measured(config, rng))
            study.complete(number, arms[-1], _value(arms[-1], arms[0]), 120.0)
    if finished:
        save_profile(folder / STUDY_PROFILE, _profile(arms, failed, trials))


def measured(config: SpecConfig, rng: random.Random) -> Measurement:
    """All passes of one configuration."""
    runs = [_run(config, load, repeat, rng) for load in LOADS for repeat in range(_REPEATS)]
    return Measurement(config, tuple(runs), launch_s=30.0, duration_s=120.0)


def _run(config: SpecConfig, load: int, repeat: int, rng: random.Random) -> Run:
    step_ms, right, depth = _shape(config, load)
    step_ms *= rng.gauss(1.0, 0.01)
    length = sum(right**i for i in range(depth + 1))
    records = tuple(_record(i, right, depth, step_ms / 1000, rng) for i in range(_REQUESTS))
    return Run(
        part="tune",
        concurrency=load,
        repeat=repeat,
        output_throughput=load * length / step_ms * 1000,
        window_s=(0.0, 1.0),
        duration_s=1.0,
        records=records,
        server=ServerDelta(400, load * 0.97, step_ms, int(400 * load * length)),
    )


def _shape(config: SpecConfig, load: int) -> tuple[float, float, int]:
    """Step time in ms, the chance of each draft, and the depth."""
    if config.is_plain:
        return 20 + 0.4 * load, 0.0, 0
    depth = config.num_steps or min(6, (config.num_draft_tokens or 1) - 1)
    tokens = config.num_draft_tokens or depth + 1
    right = min(0.95, _RIGHT[config.algorithm] + 0.03 * math.log2(config.topk or 1))
    draft = 0.0 if config.algorithm == "NGRAM" else 1.5 * depth
    return 20 + 0.4 * load + 0.03 * load * tokens + draft, right, depth


def _record(
    prompt: int, right: float, depth: int, step_s: float, rng: random.Random
) -> RequestRecord:
    length = sum(right**i for i in range(depth + 1))
    steps = max(1, round(_TOKENS / length))
    histogram = [0] * (depth + 1)
    for _ in range(steps):
        correct = 0
        while correct < depth and rng.random() < right:
            correct += 1
        histogram[correct] += 1
    speculates = depth > 0
    return RequestRecord(
        prompt=prompt,
        label=("edit", "chat")[prompt % 2],
        start_s=0.0,
        end_s=steps * step_s,
        chunk_s=tuple(round(step_s * (i + 1), 6) for i in range(steps)),
        chunk_tokens=tuple(round(length * (i + 1)) for i in range(steps)),
        prompt_tokens=100,
        completion_tokens=_TOKENS,
        finish_reason="length",
        verify_ct=steps if speculates else None,
        num_correct_drafts=sum(i * count for i, count in enumerate(histogram)),
        correct_histogram=tuple(histogram) if speculates else (),
    )


def _value(arm: Measurement, plain: Measurement) -> float:
    logs = [
        math.log(mine / theirs)
        for load in LOADS
        for mine, theirs in zip(arm.throughputs(load), plain.throughputs(load), strict=True)
    ]
    return sum(logs) / len(logs)


def _profile(arms: Sequence[Measurement], failed: Sequence[SpecConfig], trials: int) -> Profile:
    plain, ranked = arms[0], sorted(arms[1:], key=lambda arm: -_value(arm, arms[0]))
    best = ranked[0]
    ratio = math.exp(_value(best, plain))
    overall = Interval(ratio, ratio * 0.98, ratio * 1.02)
    return Profile(
        target=Target("synthetic/model", "0" * 64, "LlamaForCausalLM"),
        environment=Environment("cuda", LABEL, 1, "0.5.23", "bfloat16", 1),
        workload=WorkloadSummary("synthetic.jsonl", "0" * 64, {"tune": 16}, {}, LOADS, 0.0),
        verdict=Verdict("faster", f"{LABEL}; {overall}", "tune", best.config, overall),
        choice=Choice(best.config, {"speculative_algorithm": best.config.algorithm}, {}),
        baseline=points.points(plain, "tune"),
        points=tuple(row for arm in ranked[:4] for row in _rows(arm, plain)),
        schedule=dict.fromkeys(LOADS, 1),
        acceptance=points.acceptance([best]),
        failed=tuple(Failure(config, "ran out of memory") for config in failed[:3]),
        provenance=Provenance(
            LABEL, "2026-01-01T00:00:00+00:00", 0, "random", trials, 120.0 * trials, LABEL
        ),
        lossless=Lossless("identical", Agreement(8, 0, 0), Agreement(8, 0, 0), 0.6),
        step_times=points.step_times([plain, *ranked[:4]]),
        warnings=(LABEL,),
    )


def _rows(arm: Measurement, plain: Measurement) -> tuple[Point, ...]:
    ratios = {load: stats.ratio(arm.throughputs(load), plain.throughputs(load)) for load in LOADS}
    return points.points(arm, "tune", ratios)
