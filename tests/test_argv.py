"""Keyword arguments as a command line."""

from __future__ import annotations

import argparse
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.argv import to_argv
from autospec.errors import ConfigError


def test_each_kind_of_value_has_its_form() -> None:
    """Scalars follow their flag, True stands alone, lists spread, absent values vanish."""
    argv = to_argv(
        {
            "page_size": 16,
            "share": 0.5,
            "name": "a b",
            "fast": True,
            "slow": False,
            "unset": None,
            "none": [],
            "many": (1, 2),
        }
    )

    assert argv == shlex.split("--page-size 16 --share 0.5 --name 'a b' --fast --many 1 2")


@given(st.text() | st.integers() | st.floats(allow_nan=False))
def test_a_parser_reads_the_value_back(value: str | float) -> None:
    """Any scalar, one that begins with a dash included, comes through argparse unchanged."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--some-key", type=type(value))

    assert parser.parse_args(to_argv({"some_key": value})).some_key == value


@pytest.mark.parametrize("value", [{"a": 1}, [True], [[1]], b"x"])
def test_other_values_are_refused_by_name(value: object) -> None:
    """What no command line can say is an error that names the argument."""
    with pytest.raises(ConfigError, match="odd is"):
        to_argv({"odd": value})
