"""When a server counts as down, and when somebody looks again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autospec.client.breaker import FAILURES, FIRST_WAIT_S, LONGEST_WAIT_S, Breaker


def test_unreachable_server_is_down_at_once() -> None:
    """A refused connection needs no second proof."""
    breaker = Breaker()
    assert breaker.failed(0.0, unreachable=True)
    assert breaker.condition(0.0) == "down"


def test_failures_count_only_in_a_row() -> None:
    """A server that answers in between is up."""
    breaker = Breaker()
    for _ in range(10):
        for _ in range(FAILURES - 1):
            assert not breaker.failed(0.0, unreachable=False)
        breaker.answered()
    assert breaker.condition(0.0) == "up"
    assert [breaker.failed(0.0, unreachable=False) for _ in range(FAILURES)][-1]


def test_sign_of_life_alone_proves_little() -> None:
    """One more failure and it is down again, for longer; an answer clears its name."""
    breaker = Breaker()
    breaker.failed(0.0, unreachable=True)
    assert breaker.alive()
    assert not breaker.alive()
    assert breaker.failed(0.0, unreachable=False)
    assert breaker.condition(1.5 * FIRST_WAIT_S) == "down"
    assert breaker.condition(2 * FIRST_WAIT_S) == "due"
    breaker.alive()
    breaker.answered()
    assert not breaker.failed(0.0, unreachable=False)


@given(st.integers(1, 12))
def test_waits_double_up_to_a_limit_and_one_looks_at_a_time(looks: int) -> None:
    """Whoever looks keeps all others from it until the next wait is over."""
    breaker = Breaker()
    breaker.failed(0.0, unreachable=True)
    now = 0.0
    for number in range(looks):
        wait = min(FIRST_WAIT_S * 2**number, LONGEST_WAIT_S)
        assert breaker.condition(now + 0.99 * wait) == "down"
        now += wait
        assert breaker.condition(now) == "due"
        breaker.claim(now)
        assert breaker.condition(now) == "down"
    assert breaker.alive()
    assert breaker.condition(now) == "up"


def test_late_answer_does_not_bring_a_dead_server_back() -> None:
    """It was sent before the server died; whoever is sent there next would be lost."""
    breaker = Breaker()
    breaker.failed(0.0, unreachable=True)
    breaker.answered()
    assert breaker.condition(0.5 * FIRST_WAIT_S) == "down"
