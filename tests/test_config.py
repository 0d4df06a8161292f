"""SpecConfig: one canonical text, an order, and refusals that name the value."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.config import PLAIN, SpecConfig
from autospec.errors import ConfigError
from tests.strategies import spec_configs


@given(spec_configs())
def test_text_form_reads_back_to_the_same_config(config: SpecConfig) -> None:
    """Nothing is lost in the text form, whatever the draft model's path looks like."""
    assert SpecConfig.parse(str(config)) == config


@given(spec_configs(), spec_configs())
def test_equal_configs_and_only_they_share_a_text(one: SpecConfig, other: SpecConfig) -> None:
    """The text is an identity: a study may use it as a key."""
    assert (str(one) == str(other)) == (one == other)


@given(spec_configs(), spec_configs())
def test_of_two_configs_that_differ_one_comes_first(one: SpecConfig, other: SpecConfig) -> None:
    """Order and equality agree, so that what is not set is not taken for a zero."""
    assert ((one < other) or (other < one)) == (one != other)


def test_a_value_that_is_not_set_comes_before_a_zero() -> None:
    """Both can be given, so a sorted list of both has one order."""
    assert SpecConfig("NGRAM") < SpecConfig("NGRAM", num_steps=0)


@given(st.lists(spec_configs(), max_size=8), st.randoms())
def test_order_is_total_and_puts_plain_first(configs: list[SpecConfig], random: Random) -> None:
    """Sorting never fails and never depends on the input's order; PLAIN comes first."""
    ordered = sorted(configs)
    random.shuffle(configs)
    assert sorted(configs) == ordered
    assert PLAIN not in ordered or ordered[0] == PLAIN


def test_label_leaves_out_where_the_draft_lies() -> None:
    """A table shows the shape, not a long path."""
    config = SpecConfig("STANDALONE", 3, 4, 8, "/models/a draft")
    assert config.label == "STANDALONE steps=3 topk=4 tokens=8"
    assert "'/models/a draft'" in str(config)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "cannot be read"),
        ("ngram", "upper-case"),
        ("NGRAM tokens", "'tokens'"),
        ("NGRAM tokens=x", "'x'"),
        ("NGRAM tokens=0", "num_draft_tokens is 0"),
        ("NGRAM speed=3", "'speed=3'"),
        ("NGRAM tokens=3 tokens=4", "tokens is given twice"),
        ("NGRAM breadth=-1", "ngram_max_bfs_breadth is -1"),
        ("PLAIN tokens=3", "PLAIN takes no"),
        ('NGRAM match="', "cannot be read"),
    ],
)
def test_unusable_text_is_refused_by_name(text: str, named: str) -> None:
    """The message shows what was wrong, in one line."""
    with pytest.raises(ConfigError) as caught:
        SpecConfig.parse(text)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_option_and_wrong_type_are_refused() -> None:
    """Options come from one list, each with one type."""
    with pytest.raises(ConfigError, match="'speed'"):
        SpecConfig("NGRAM", options=(("speed", 1),))
    with pytest.raises(ConfigError, match="must be of type int"):
        SpecConfig("NGRAM", options=(("ngram_max_bfs_breadth", "4"),))
