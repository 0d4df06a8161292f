"""Traces at rest, and their replay against figures worked out by hand and by another program."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace as changed
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autospec.control.controller import Controller
from autospec.control.costs import Costs, costs_of_profile, load_costs
from autospec.control.policy import Decision, Observation
from autospec.control.replay import Ground, Result, replay
from autospec.control.trace import Step, Trace, read_trace, write_trace
from autospec.control.worlds import TABLES, WORLDS, Model, draw_model, make_world
from autospec.errors import ConfigError, SchemaError
from autospec.evidence import StepTime
from autospec.profile import Profile
from tests.test_profile import make_profile

COSTS = Costs({0: {1: 10.0, 3: 12.0}, 1: {1: 11.0, 3: 15.0}, 3: {1: 13.0, 3: 21.0}})


class Plays:
    """Decides by a list of depths, and keeps what it was shown."""

    def __init__(self, depths: list[int], *, probes: frozenset[int] = frozenset()) -> None:
        self.shown: list[Observation] = []
        self._depths = depths
        self._probes = probes

    def decide(self, observation: Observation) -> Decision:
        """The next depth."""
        number = len(self.shown)
        self.shown.append(observation)
        want = "probe" if number in self._probes else "settle"
        return Decision(self._depths[number % len(self._depths)], "plays", want)  # type: ignore[arg-type]  # one of two words


def trace_of(rows: Sequence[tuple[int, ...]], phases: Sequence[str] | None = None) -> Trace:
    """A trace of depth 3."""
    names: Sequence[str | None] = phases or [None] * len(rows)
    steps = (
        Step(0.01 * i, row, name) for i, (row, name) in enumerate(zip(rows, names, strict=True))
    )
    return Trace("NGRAM", 3, 1, tuple(steps))


def play(trace: Trace, policy: Plays) -> Result:
    """Replay with the table above."""
    ground = Ground(trace, COSTS)
    return replay(ground, Controller(ground.setting, policy))


def test_tokens_times_and_throughput_by_hand() -> None:
    """Three steps at depths 3, 1 and 0."""
    result = play(trace_of([(3, 0, 1), (2,), (3, 3, 3)]), Plays([3, 1, 0]))
    assert result.whole.tokens == (4 + 1 + 2) + 2 + 3
    assert result.whole.duration_ms == pytest.approx(21 + 11 + 12)
    assert result.whole.throughput == pytest.approx(1000 * 12 / 44)


def test_a_policy_sees_what_a_server_would_show() -> None:
    """Correct drafts up to the depth it chose, nothing of a plain step, and the coming batch."""
    policy = Plays([3, 1, 0, 3])
    play(trace_of([(3, 0, 1), (2,), (3, 3, 3), (0,)]), policy)
    seen = [(o.batch_size, o.depth, list(o.correct)) for o in policy.shown]
    assert seen == [(3, 0, []), (1, 3, [3, 0, 1]), (3, 1, [1]), (1, 0, [])]
    assert [o.time_s for o in policy.shown] == pytest.approx([0, 0.021, 0.032, 0.044])


def reference(rows: list[tuple[int, ...]], chosen: list[int]) -> dict[str, float]:
    """The ratios straight from their definition, in plain Python."""
    depths = (0, 1, 3)
    made, spent = 0, []
    weights: dict[int | str, float] = dict.fromkeys([*depths, "oracle"], 0.0)
    for i, row in enumerate(rows):
        time = COSTS.time_ms(chosen[i], len(row))
        made += sum(min(value, chosen[i]) + 1 for value in row)
        spent.append(time)
        window = rows[max(0, i - 50) : i + 51]
        rates = {0: len(row) / COSTS.time_ms(0, len(row))}
        for k in depths[1:]:
            tokens = sum(sum(min(value, k) + 1 for value in other) for other in window)
            rates[k] = tokens / sum(COSTS.time_ms(k, len(other)) for other in window)
        for k in depths:
            weights[k] += time * rates[k]
        weights["oracle"] += time * max(rates.values())
    return {
        "vs_plain": made / weights[0],
        "vs_best_fixed": min(made / weights[k] for k in depths),
        "vs_oracle": made / weights["oracle"],
    }


ROWS = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple), min_size=1, max_size=140
)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.lists(st.sampled_from([0, 1, 3]), min_size=1, max_size=9))
def test_ratios_are_as_defined(rows: list[tuple[int, ...]], depths: list[int]) -> None:
    """Against another program that knows nothing of windows by cumulative sums."""
    result = play(trace_of(rows), Plays(depths)).whole
    chosen = [depths[i % len(depths)] for i in range(len(rows))]
    for name, value in reference(rows, chosen).items():
        assert getattr(result, name) == pytest.approx(value), name


def test_plain_decoding_is_exactly_itself() -> None:
    """``vs_plain`` of a policy that never speculates is 1, whatever the batches."""
    result = play(trace_of([(3,), (1, 2, 3), (0, 0)] * 60), Plays([0])).whole
    assert result.vs_plain == pytest.approx(1)
    assert result.switches == result.probe_share == 0


def test_the_best_fixed_depth_is_the_hardest_to_beat() -> None:
    """The one that makes most when all drafts are right, plain when none is."""
    assert play(trace_of([(3, 3, 3)] * 200), Plays([0])).whole.best_fixed_depth == 3
    assert play(trace_of([(0, 0, 0)] * 200), Plays([3])).whole.best_fixed_depth == 0


def test_switches_fallbacks_recoveries_and_probes() -> None:
    """Steps run to learn from change nothing; depths do, and plain decoding is named apart."""
    policy = Plays([3, 3, 1, 0, 3, 0, 0, 1], probes=frozenset({4}))
    result = play(trace_of([(0,)] * 8), policy).whole
    assert result.switches == 3
    assert result.fallbacks == (3,)
    assert result.recoveries == (7,)
    assert result.probe_steps == 1
    # The probe took 13 ms for one token, which plain decoding makes in 10.
    assert result.probe_share == pytest.approx(3 / result.duration_ms)


def test_phases_have_figures_of_their_own() -> None:
    """In order; a change at the first step of a phase is that phase's."""
    rows = [(3,)] * 300 + [(0,)] * 300
    names = ["good"] * 300 + ["bad"] * 300
    result = play(trace_of(rows, names), Plays([3] * 300 + [0] * 300))
    good, bad = result.phases
    assert [good.phase, bad.phase] == ["good", "bad"]
    assert (good.steps, bad.first_step) == (300, 300)
    assert (good.switches, bad.switches) == (0, 1)
    assert bad.fallbacks == (300,)
    assert good.tokens + bad.tokens == result.whole.tokens
    assert play(trace_of(rows), Plays([3])).phases == ()


def test_a_table_without_a_depth_of_the_trace_is_refused() -> None:
    """Naming the depths that have step times."""
    with pytest.raises(SchemaError, match=r"known for depths \[0, 5\]"):
        Ground(trace_of([(1,)]), Costs({0: {1: 1.0}, 5: {1: 1.0}}))


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Phases included; unknown keys of another recorder are left alone."""
    trace = trace_of([(3, 0), (1,)], ["a", "b"])
    path = tmp_path / "trace.jsonl"
    write_trace(path, trace)
    assert read_trace(path) == trace
    path.write_text(
        '{"algorithm": "NGRAM", "depth": 3, "topk": 1, "server": "x"}\n'
        '{"t": 0, "batch": 1, "correct": [2], "queue": 4}\n'
    )
    assert read_trace(path) == Trace("NGRAM", 3, 1, (Step(0.0, (2,)),))


HEADER = '{"schema": 1, "algorithm": "NGRAM", "depth": 3, "topk": 1}\n'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "algorithm is None"),
        ('{"schema": 9, "algorithm": "NGRAM"}\n', "line 1: schema 9 is newer"),
        ('{"algorithm": "NGRAM", "depth": 0}\n', "depth is 0"),
        (HEADER, "no step after the header"),
        (HEADER + "{", "line 2: not JSON"),
        (HEADER + "[]", "line 2: must be a mapping"),
        (HEADER + '{"t": 0, "batch": 2, "correct": [1]}', "batch is 2, but correct has 1"),
        (HEADER + '{"t": 0, "batch": 1, "correct": [4]}', "correct has 4, must be .* 0 to 3"),
        (HEADER + '{"t": 0, "batch": 1, "correct": [true]}', "correct has True"),
        (HEADER + '{"t": 0, "batch": 0, "correct": []}', "correct must be a list"),
        (HEADER + '{"t": null, "batch": 1, "correct": [1]}', "t is None"),
        (HEADER + '{"t": 0, "batch": 1, "correct": [1], "phase": 3}', "phase is 3"),
    ],
)
def test_traces_that_cannot_be_read(tmp_path: Path, text: str, named: str) -> None:
    """File, line and field are named."""
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(SchemaError, match=named) as caught:
        read_trace(path)
    assert "trace.jsonl" in str(caught.value)


def test_tables_at_rest(tmp_path: Path) -> None:
    """JSON's keys are text; they are read as the numbers they were."""
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"step_time_ms": {"0": {"1": 10, "8": 12.0}, "2": {"1": 11.0}}}))
    costs = load_costs(path)
    assert costs.depths == (0, 2)
    assert costs.time_ms(0, 4.5) == 11
    for text, named in (
        ("{", "not JSON"),
        ("{}", "step_time_ms"),
        ('{"step_time_ms": {}}', "depth 0"),
    ):
        path.write_text(text)
        with pytest.raises(SchemaError, match=named) as caught:
            load_costs(path)
        assert "costs.json" in str(caught.value)


def test_tables_from_a_profile() -> None:
    """Plain rows and those of the best method's depths; means of one batch size weigh by steps."""
    profile: Profile = make_profile()
    best = profile.verdict.best
    assert best is not None
    plain = profile.baseline[0].config
    rows = (
        StepTime(plain, 1, 1.0, 10.0, 100),
        StepTime(plain, 1, 1.0, 13.0, 200),
        StepTime(best, 1, 1.0, 14.0, 100),
    )
    costs = costs_of_profile(_with(profile, rows), "p.yaml")
    assert costs.time_ms(0, 1) == 12
    assert len(costs.depths) == 2
    with pytest.raises(SchemaError, match=r"p.yaml: step_times has rows of depth \[0\]"):
        costs_of_profile(_with(profile, rows[:1]), "p.yaml")


def _with(profile: Profile, rows: tuple[StepTime, ...]) -> Profile:
    return changed(profile, step_times=rows)


@pytest.mark.parametrize("name", WORLDS)
def test_worlds_are_the_same_for_a_seed_and_named_by_phase(name: str) -> None:
    """And others for another seed."""
    model = Model(TABLES["dear drafts"], 2)
    world = make_world(name, 1, model)
    assert make_world(name, 1, model) == world
    assert make_world(name, 2, model) != world
    assert len(world.trace.steps) >= 6000
    assert all(step.phase for step in world.trace.steps)
    assert world.trace.depth == world.model.depth


def test_worlds_are_worth_what_they_say() -> None:
    """The marginal one makes 1.1x at its best depth, replayed."""
    world = make_world("stationary marginal", 3, Model(TABLES["dear drafts"], 16))
    ground = Ground(world.trace, world.model.costs)
    best = max(
        replay(ground, Controller(ground.setting, Plays([depth]))).whole.vs_plain
        for depth in ground.setting.depths
    )
    assert best == pytest.approx(1.1, abs=0.01)


def test_seeds_draw_every_table() -> None:
    """One policy meets many models."""
    assert {id(draw_model(seed).costs) for seed in range(5)} == {id(t) for t in TABLES.values()}
    with pytest.raises(ConfigError, match="world 'calm' is none of"):
        make_world("calm", 0)
