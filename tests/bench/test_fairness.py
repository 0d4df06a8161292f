"""What may be put side by side, and what is said of the rest."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from autospec.bench.fairness import check_fairness
from autospec.bench.result import Subject
from autospec.config import PLAIN, SpecConfig
from autospec.errors import MismatchError
from autospec.evidence import Environment

HERE = Environment("cpu", "A CPU", 1, "0.5.23", "auto", 1, 8, "autospec")
LAUNCHED = Subject(
    name="PLAIN",
    config=PLAIN,
    model="models/m",
    resolved={"version": "0.5.23", "dtype": "auto", "max_running_requests": 48, "page_size": 1},
    digest="d1",
    environment=HERE,
)


def other(**changes: Any) -> Subject:
    """The same server under another configuration, with changes."""
    config = SpecConfig("NGRAM", num_draft_tokens=4)
    return dataclasses.replace(LAUNCHED, name="NGRAM", config=config, **changes)


def test_speculation_alone_is_no_difference() -> None:
    """It is what is compared."""
    speculative = {**LAUNCHED.resolved, "speculative_algorithm": "NGRAM"}
    found = check_fairness(LAUNCHED, other(resolved=speculative))
    assert (found.unfair, found.differs) == ((), ())


def test_resolved_settings_that_differ_are_shown() -> None:
    """KV capacity, page size and the engine's version are told, not refused."""
    resolved = {**LAUNCHED.resolved, "page_size": 16, "max_total_num_tokens": 9, "version": "0.6"}
    found = check_fairness(LAUNCHED, other(resolved=resolved))
    assert found.unfair == ()
    assert set(found.differs) == {
        "sglang: 0.5.23 / 0.6",
        "max_total_num_tokens: None / 9",
        "page_size: 1 / 16",
    }


def test_first_unfair_field_is_named_with_both_values() -> None:
    """And whose each value is."""
    limited = {**LAUNCHED.resolved, "max_running_requests": 8}
    with pytest.raises(MismatchError) as caught:
        check_fairness(LAUNCHED, other(resolved=limited))
    assert "max_running_requests is 48 for PLAIN and 8 for NGRAM" in str(caught.value)


def test_force_shows_what_is_unfair_once() -> None:
    """It is not among the other differences again."""
    limited = {**LAUNCHED.resolved, "max_running_requests": 8}
    found = check_fairness(LAUNCHED, other(resolved=limited, digest="d2"), force=True)
    assert found.unfair == ("model digest: d1 / d2", "max_running_requests: 48 / 8")
    assert found.differs == ()


def test_digest_decides_where_both_are_known_and_the_path_elsewhere() -> None:
    """The same weights may lie in two folders; a server by address has a path only."""
    moved = other(model="elsewhere/m")
    assert check_fairness(LAUNCHED, moved).unfair == ()
    with pytest.raises(MismatchError, match="model path is 'models/m'"):
        check_fairness(LAUNCHED, dataclasses.replace(moved, digest=None))


@pytest.mark.parametrize(
    "change", [{"accelerator": "B CPU"}, {"cpu_threads": 4}, {"cpu_kernels": "native"}]
)
def test_other_machine_is_refused_where_both_are_known(change: dict[str, Any]) -> None:
    """Two kept results may come from two machines."""
    elsewhere = dataclasses.replace(HERE, **change)
    with pytest.raises(MismatchError, match=next(iter(change))):
        check_fairness(LAUNCHED, other(environment=elsewhere))
    assert check_fairness(LAUNCHED, other(environment=None)).unfair == ()
