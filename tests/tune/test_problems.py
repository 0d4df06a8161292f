"""Replays: tables read and refused, worlds, grids, figures."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from autospec.config import PLAIN, SpecConfig
from autospec.errors import ConfigError, SchemaError
from autospec.measurement import ServerDelta
from autospec.tune.grid import GridHeader, GridRow, text_of
from autospec.tune.panels import read_panels
from autospec.tune.problems import Problem, Result, num_trials, replay, summarize
from autospec.tune.samplers import SAMPLERS
from autospec.tune.tables import read_problems
from autospec.tune.worlds import make_table, make_world
from tests.tune.test_grid import HEADER

HEAD = "target,method,dataset,n_draft,baseline_tok_s,tok_s,accept_length,pos1,pos2\n"
ROWS = (
    "m/A,Fast draft,code,1,100,150,1.8,0.8,\n"
    "m/A,Fast draft,code,2,100,170,2.4,0.8,0.6\n"
    "m/A,Other-1,code,2,100,90,1.5,0.4,0.1\n"
    "m/A,Fast draft,chat,1,80,,,,\n"
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two problems."""
    path = tmp_path / "table.csv"
    path.write_text(HEAD + ROWS)
    return path


def test_each_target_and_dataset_is_a_problem_with_plain(table: Path) -> None:
    """Arms are plain and every method and length; a trial shows what its row has."""
    code, chat = read_panels(table)
    assert (code.name, len(code.truth)) == ("m/A code", 4)
    assert code.truth[PLAIN] == 100
    assert code.label(code.best) == "Fast draft n=2"
    shown = code.reveal(code.best, 0)
    assert shown.throughput == 170
    assert shown.seen is not None
    assert (shown.seen.accept_length, shown.seen.rates) == (2.4, (0.8, 0.6))
    assert [chat.truth[arm] for arm in chat.truth] == [80, None]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("tok_s,accept", "speed,accept", "no column 'tok_s'"),
        ("code,1,100,150", "code,1,100,fast", "line 2: tok_s is 'fast'"),
        ("code,2,100,170", "code,2,101,170", "line 3: baseline_tok_s is '101'"),
        ("code,2,100,170", "code,1,100,170", "line 3: Fast draft with 1 drafts comes twice"),
        ("code,2,100,170", "code,1.5,100,170", "line 3: n_draft is '1.5'"),
        ("2.4,0.8,0.6", "0.4,0.8,0.6", "line 3: accept_length is 0.4"),
        ("0.8,0.6", "1.8,0.6", "line 3: pos1 is '1.8'"),
        ("0.8,0.6", "0.8", "line 3: must have 9 fields"),
        (ROWS, "", "has no rows"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(
    table: Path, old: str, new: str, words: str
) -> None:
    """One line that names file, line and field."""
    table.write_text((HEAD + ROWS).replace(old, new, 1))
    with pytest.raises(SchemaError, match=re.escape(words)):
        read_problems(str(table))


def test_a_missing_table_is_refused() -> None:
    """The file is named."""
    with pytest.raises(SchemaError, match=r"nowhere\.csv: cannot be read"):
        read_problems("nowhere.csv")


@pytest.mark.parametrize(
    "name",
    ["synthetic:", "synthetic:5-3", "synthetic:x", "synthetic:0-99999", "synthetic-tables:x"],
)
def test_seeds_that_cannot_be_are_refused(name: str) -> None:
    """A range has to rise, and end."""
    with pytest.raises(ConfigError, match="synthetic"):
        read_problems(name)


@pytest.mark.parametrize(
    ("kind", "name"), [("synthetic", "synthetic"), ("synthetic-tables", "table")]
)
def test_a_range_of_seeds_is_as_many_problems(kind: str, name: str) -> None:
    """Both ends count."""
    found = [problem.name for problem in read_problems(f"{kind}:3-5")]
    assert found == [f"{name}:3", f"{name}:4", f"{name}:5"]
    assert [problem.name for problem in read_problems(f"{kind}:7")] == [f"{name}:7"]


@pytest.mark.parametrize(
    ("trials", "fraction", "most"), [(3, None, 3), (None, 0.5, 2), (None, 0.4, 1), (None, 1.0, 4)]
)
def test_trials_are_a_number_or_a_share_rounded_down(
    table: Path, trials: int | None, fraction: float | None, most: int
) -> None:
    """Of four arms."""
    assert num_trials(read_panels(table)[0], trials, fraction) == most


@pytest.mark.parametrize(("trials", "fraction"), [(None, None), (1, 0.5), (0, None), (None, 1.5)])
def test_an_impossible_number_of_trials_is_refused(
    table: Path, trials: int | None, fraction: float | None
) -> None:
    """Exactly one of the two, within its bounds."""
    with pytest.raises(ConfigError):
        num_trials(read_panels(table)[0], trials, fraction)


@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
def test_every_sampler_finds_the_best_with_all_trials(table: Path, sampler: str) -> None:
    """With a trial for each arm, the choice is the best of a table without noise."""
    problem = read_panels(table)[0]
    outcome = replay(problem, sampler, len(problem.truth), 0)
    assert outcome.chosen == problem.best
    assert outcome.regret == 0
    assert outcome.vs_plain == pytest.approx(1.7)
    assert all(reason for _, reason in outcome.asked)


def test_a_table_where_nothing_runs_ends_with_plain(table: Path) -> None:
    """A failed arm is data; plain decoding is the choice."""
    outcome = replay(read_panels(table)[1], "structured", 2, 0)
    assert outcome.chosen == PLAIN


def test_figures_are_over_problems_and_seeds() -> None:
    """Means, shares and extremes."""
    arm = SpecConfig("A", 1, 1, 2)
    speeds = {PLAIN: 100.0, arm: 95.0}
    problem = Problem("p", speeds, lambda config, _seed: Result(speeds[config]))
    worse = replay(problem, lambda arms, seed: SAMPLERS["grid"]([arm], seed), 1, 0)
    figures = summarize([replay(problem, "grid", 2, 1), worse])
    assert (figures["problems"], figures["seeds"]) == (1, 2)
    assert figures["trials_mean"] == 1.5
    assert figures["within_2pct"] == 0.5
    assert figures["mean_regret"] == pytest.approx(0.025)
    assert figures["max_regret"] == pytest.approx(0.05)
    assert figures["least_vs_plain"] == pytest.approx(0.95)


def test_a_world_is_the_same_for_the_same_seed() -> None:
    """Truth and trials; another trial seed has other noise."""
    world, again = make_world(7), make_world(7)
    assert world.truth == again.truth
    arm = world.best
    assert world.reveal(arm, 0) == again.reveal(arm, 0)
    assert world.reveal(arm, 0).throughput != world.reveal(arm, 1).throughput


def test_worlds_have_crashes_and_worlds_where_plain_is_best() -> None:
    """Both are common, so that a sampler meets them; the noise is about what is said."""
    worlds = [make_world(seed) for seed in range(40)]
    assert sum(None in world.truth.values() for world in worlds) > 5
    assert 3 < sum(world.best == PLAIN for world in worlds) < 30
    for world in worlds[:10]:
        shown = world.reveal(PLAIN, 0).throughput
        assert shown == pytest.approx(world.truth[PLAIN], rel=0.1)


def test_synthetic_tables_show_positions_without_noise() -> None:
    """A trial's throughput is the truth, and its length the sum of its positions."""
    table = make_table(1)
    for arm, speed in table.truth.items():
        result = table.reveal(arm, 0)
        assert result.throughput == speed
        if not arm.is_plain:
            assert result.seen is not None
            assert result.seen.accept_length == pytest.approx(1 + sum(result.seen.rates))


def test_the_structured_sampler_is_ahead_of_random_on_worlds() -> None:
    """In ten worlds and eight trials its mean regret is below a third of random search's."""
    worlds = [make_world(seed) for seed in range(10)]
    regrets = {
        name: sum(replay(world, name, 8, 0).regret for world in worlds)
        for name in ("structured", "random")
    }
    assert regrets["structured"] < regrets["random"] / 3


def grid_rows(launch: int, config: SpecConfig) -> list[GridRow]:
    """Three passes at each of two loads; deeper drafts are faster."""
    depth = config.num_steps or 0
    rates = (1, 1, 2)[: depth + 1] if depth else ()
    return [
        GridRow(
            launch,
            config,
            level,
            repeat,
            "complete",
            launch_s=30.0,
            pass_s=5.0,
            output_throughput=10.0 * level * (1 + 0.2 * depth) + 0.01 * repeat,
            correct_histogram=rates,
            server=ServerDelta(50, float(level), 40.0 + depth, 100),
        )
        for repeat in range(3)
        for level in HEADER.concurrencies
    ]


def test_a_recorded_grid_is_one_problem(tmp_path: Path) -> None:
    """Its truth is the mean over the loads; a trial shows throughputs, steps and acceptance."""
    arms = [SpecConfig("STANDALONE", n, 1, n + 1, "small") for n in (1, 2)]
    header = replace(HEADER, launches=(PLAIN, *arms, PLAIN), repeats=3)
    lines: list[GridHeader | GridRow] = [header]
    lines += [row for i, arm in enumerate(header.launches) for row in grid_rows(i, arm)]
    path = tmp_path / "grid.jsonl"
    path.write_text(text_of(lines))
    (problem,) = read_problems(str(path))
    assert problem.name == "grid"
    assert problem.best == arms[1]
    assert problem.truth[PLAIN] == pytest.approx(20.0, rel=0.01)
    seen = problem.reveal(arms[1], 0).seen
    assert seen is not None
    assert [load.load for load in seen.loads] == [1, 4]
    assert seen.loads[0].step_time_ms == 42.0
    assert seen.rates == pytest.approx((0.75, 0.5))
    assert (seen.launch_s, seen.passes_s) == (30.0, 30.0)
    assert replay(problem, "structured", 3, 0).chosen == arms[1]


def test_a_shape_that_failed_at_one_load_did_not_run(tmp_path: Path) -> None:
    """It cannot be the best, and a trial of it fails."""
    arm = SpecConfig("STANDALONE", 2, 1, 3, "small")
    header = replace(HEADER, launches=(PLAIN, arm), repeats=3)
    lines: list[GridHeader | GridRow] = [header]
    lines += [*grid_rows(0, PLAIN), *grid_rows(1, arm)[::2]]
    path = tmp_path / "grid.jsonl"
    path.write_text(text_of(lines))
    (problem,) = read_problems(str(path))
    assert problem.truth[arm] is None
    assert problem.reveal(arm, 0) == Result(None)
