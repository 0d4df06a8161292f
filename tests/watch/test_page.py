"""The plugin's figures on a Prometheus page."""

from __future__ import annotations

import pytest

from autospec.watch.page import read_plugin_page

PAGE = """# HELP autospec:active 1 while a policy decides, else 0.
# TYPE autospec:active gauge
autospec:active{dp_rank="0"} 1.0
autospec:active{dp_rank="1"} 0.0
# TYPE autospec:depth gauge
autospec:depth{dp_rank="0"} 3.0
# TYPE autospec:plain_steps_total counter
autospec:plain_steps_total{dp_rank="0"} 120.0
autospec:speculative_steps_total{dp_rank="0"} 1.5e+03
autospec:fallbacks_total{dp_rank="0"} 2.0
sglang:num_running_reqs{tp_rank="0"} 4.0
"""


def test_state_and_counters_are_those_of_the_first_rank() -> None:
    """Enough to tell the state and to notice fallbacks."""
    status = read_plugin_page(PAGE)
    assert status is not None
    assert (status.active, status.depth, status.steps) == (True, 3, 1620)
    assert status.counters == {"plain_steps": 120, "speculative_steps": 1500, "fallbacks": 2}


@pytest.mark.parametrize("page", ["", 'sglang:num_running_reqs{dp_rank="0"} 4.0\n'])
def test_a_page_without_a_plugin_says_nothing(page: str) -> None:
    """The server may have none, or no page."""
    assert read_plugin_page(page) is None
