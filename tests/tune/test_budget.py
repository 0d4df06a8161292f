"""Durations, limits and plans."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.errors import BudgetError
from autospec.tune.budget import Budget, Clock, Cost, format_duration, parse_duration, plan

COST = Cost(launch_s=20, passes_s=40, confirm_s=300, confirm_launches=3, confirm_rounds=3)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45m", 2700),
        ("90s", 90),
        ("1h30m", 5400),
        ("600", 600),
        ("1.5h", 5400),
        ("2h5s", 7205),
        (" 10m ", 600),
        ("0.5", 0.5),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    """Hours, minutes, seconds, together or alone, or bare seconds."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "m", "45x", "45 m", "-5", "30m1h", "1e3", "nan", "inf", "0", "0m", "٣m", "9" * 400],
)
def test_what_is_no_duration_is_refused_by_name(text: str) -> None:
    """The message repeats the text and shows what would be right."""
    with pytest.raises(BudgetError) as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)
    assert "45m" in str(caught.value)


@given(st.integers(1, 10**6))
def test_a_written_duration_reads_back(seconds: int) -> None:
    """Formatting loses no whole second."""
    assert parse_duration(format_duration(seconds)) == seconds


def test_durations_are_written_rounded_up() -> None:
    """A time needed is never understated."""
    assert [format_duration(s) for s in (0, 0.2, 59.5, 3600, 5405)] == [
        "0s",
        "1s",
        "1m",
        "1h",
        "1h30m5s",
    ]


@pytest.mark.parametrize("limits", [{"seconds": 0}, {"seconds": -1}, {"max_trials": 0}])
def test_a_budget_that_allows_nothing_is_refused(limits: dict[str, int]) -> None:
    """Limits are positive or absent."""
    with pytest.raises(BudgetError, match="must be"):
        Budget(**limits)


def test_the_clock_goes_on_where_the_last_session_stopped() -> None:
    """Seconds of earlier sessions count."""
    now = 100.0
    clock = Clock(lambda: now, used_s=50)
    now = 110.0
    assert clock.used_s() == 60


def test_without_limits_everything_is_planned() -> None:
    """Plain twice, every candidate, and one round of the confirmation."""
    planned = plan(10, Budget(), COST)
    assert (planned.trials, planned.launches, planned.limit) == (10, 15, "candidates")
    assert planned.expected_s == 12 * 60 + 300


def test_the_number_of_trials_limits_the_plan_over_sessions() -> None:
    """Trials of earlier sessions count; plain does not."""
    assert plan(10, Budget(max_trials=4), COST).trials == 4
    resumed = plan(7, Budget(max_trials=4), COST, trials_done=3, plain_launches=0)
    assert (resumed.trials, resumed.launches, resumed.limit) == (1, 4, "max_trials")


def test_time_limits_the_plan() -> None:
    """What plain decoding and the confirmation leave is filled with trials."""
    planned = plan(10, Budget(seconds=600), COST)
    assert (planned.plain_launches, planned.trials, planned.limit) == (2, 3, "budget")
    assert planned.expected_s == 600


@pytest.mark.parametrize(
    ("seconds", "plain_launches", "trials"), [(480, 2, 1), (479, 1, 1), (420, 1, 1), (419, 1, 0)]
)
def test_noise_is_left_out_where_a_trial_would_not_fit_beside_it(
    seconds: float, plain_launches: int, trials: int
) -> None:
    """What a study is for comes before how noisy the machine is."""
    planned = plan(10, Budget(seconds=seconds), COST)
    assert (planned.plain_launches, planned.trials) == (plain_launches, trials)


def test_noise_still_to_be_measured_is_planned() -> None:
    """A study stopped after the baseline goes on with the second launch of plain decoding."""
    assert plan(10, Budget(), COST, plain_launches=1).launches == 14
    late = plan(10, Budget(seconds=60), COST, used_s=90, plain_launches=1)
    assert (late.plain_launches, late.trials) == (0, 0)


def test_a_budget_shorter_than_one_launch_is_refused_with_the_least() -> None:
    """The message names the budget and the time that plain decoding alone needs."""
    with pytest.raises(BudgetError, match=r"budget of 59s is shorter .* least is 1m$"):
        plan(10, Budget(seconds=59), COST)
    assert plan(10, Budget(seconds=60), COST).trials == 0


def test_a_resumed_study_out_of_time_plans_no_trials() -> None:
    """With plain measured there is something to conclude from: no error."""
    planned = plan(5, Budget(seconds=60), COST, used_s=90, trials_done=2, plain_launches=0)
    assert (planned.trials, planned.launches) == (0, 3)


def test_a_plan_says_launches_and_time() -> None:
    """What is printed first: how many launches, how long each and in all."""
    assert str(plan(10, Budget(max_trials=4), COST)) == (
        "4 of 10 candidates (as many as asked for), 9 launches: 2 for plain decoding, 4 trials, "
        "3 to confirm (up to 9 while unclear); 1m a trial, about 11m in all"
    )


@given(
    candidates=st.integers(0, 500),
    seconds=st.floats(61, 1e5),
    max_trials=st.none() | st.integers(1, 600),
)
def test_a_plan_keeps_every_limit(candidates: int, seconds: float, max_trials: int | None) -> None:
    """Never more trials than candidates, than asked for, or than the time holds."""
    planned = plan(candidates, Budget(seconds, max_trials), COST)
    assert 0 <= planned.trials <= candidates
    assert max_trials is None or planned.trials <= max_trials
    assert planned.trials == 0 or planned.expected_s <= seconds
