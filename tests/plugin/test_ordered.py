"""A tuning server's plugin runs what is ordered, and nothing where orders could not hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autospec.control.orders import Order, write_order
from autospec.errors import ConfigError
from autospec.plugin.asked import Asked, asked_for
from autospec.plugin.plan import EngineFacts, make_plan
from autospec.plugin.steering import Steering

ENGINE = EngineFacts("STANDALONE", 4)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A file of orders for depths 1, 2 and 4, at 4."""
    path = tmp_path / "orders.json"
    write_order(path, Order("a-1", 4, (1, 2, 4)))
    return path


def test_serving_takes_no_orders() -> None:
    """The variable counts only where nothing else is asked for."""
    assert asked_for({"AUTOSPEC_SWEEP": "o"}) == Asked(sweep=Path("o"))
    both = asked_for({"AUTOSPEC_SWEEP": "o", "AUTOSPEC_POLICY": "off"})
    assert both == Asked(policy="off")


def test_steps_run_at_the_depth_ordered(orders: Path) -> None:
    """From the look at a new order on, whatever acceptance shows."""
    plan = make_plan(Asked(sweep=orders), ENGINE)
    assert plan.depths == (1, 2, 4)
    assert plan.ordered is not None
    steering = Steering(plan, 4)
    assert [steering.choose(1) for _ in range(3)] == [4, 4, 4]
    write_order(orders, Order("a-2", 2, (1, 2, 4)))
    assert plan.ordered.look()
    assert not plan.ordered.look()
    assert [steering.choose(batch) for batch in (1, 8)] == [2, 2]
    assert plan.ordered.order.number == "a-2"
    assert steering.active


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"ranks": 2}, "2 ranks"),
        ({"algorithm": "NGRAM"}, "no depths"),
        ({"depth": 5}, "drafts at depth 5"),
    ],
)
def test_server_that_cannot_obey_says_so(
    orders: Path, changes: dict[str, object], says: str
) -> None:
    """Ranks that could part, another method, or another start."""
    with pytest.raises(ConfigError, match=says):
        make_plan(Asked(sweep=orders), replace(ENGINE, **changes))  # type: ignore[arg-type]  # by name
