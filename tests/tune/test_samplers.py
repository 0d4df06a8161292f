"""The samplers that know nothing, the table of names, and the encoding."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import autospec
from autospec.config import SpecConfig
from autospec.errors import ConfigError
from autospec.tune.samplers import SAMPLERS, encode, grid, make_sampler, random
from autospec.tune.space import SearchSpace, enumerate_space
from tests.tune.contract import Factory, SamplerContract, drain
from tests.tune.fakes import CANDIDATES, tree_bound

ALL_METHODS = enumerate_space(
    SearchSpace(
        ("NGRAM", "NEXTN", "DSPARK"),
        (("STANDALONE", "/a"), ("STANDALONE", "/b"), ("EAGLE3", "/c"), ("DFLASH", "/d")),
    ),
    tree_bound,
).candidates


class TestGrid(SamplerContract):
    """The grid keeps the contract."""

    @pytest.fixture
    def make(self) -> Factory:
        """The grid."""
        return grid


class TestRandom(SamplerContract):
    """Random search keeps the contract."""

    @pytest.fixture
    def make(self) -> Factory:
        """Random search."""
        return random


def test_the_grid_goes_in_sorted_order() -> None:
    """The order of a grid can be read off the candidates."""
    assert drain(make_sampler("grid", CANDIDATES[::-1], 0)) == list(CANDIDATES)


def test_another_seed_gives_another_random_order() -> None:
    """The seed matters to random search."""
    assert drain(random(CANDIDATES, 0)) != drain(random(CANDIDATES, 1))


def test_an_unknown_sampler_is_refused_with_the_known_names() -> None:
    """A mistyped name is an error that lists every sampler."""
    with pytest.raises(ConfigError, match=f"'gird', must be one of {', '.join(SAMPLERS)}"):
        make_sampler("gird", CANDIDATES, 0)


def test_only_the_gp_sampler_loads_skopt() -> None:
    """Searching without the model does not pay for its import."""
    code = (
        "import sys, autospec.tune.search, autospec.tune.samplers as s;"
        "s.make_sampler('grid', (), 0); sys.exit('skopt' in sys.modules)"
    )
    root = Path(autospec.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, timeout=60, check=False)
    assert done.returncode == 0


@given(st.lists(st.sampled_from(ALL_METHODS), unique=True))
def test_different_candidates_have_different_finite_rows(configs: list[SpecConfig]) -> None:
    """The encoding loses nothing and has no NaN."""
    rows = encode(configs)
    assert rows.shape[0] == len(configs)
    assert np.isfinite(rows).all()
    assert len({tuple(row) for row in rows.tolist()}) == len(configs)


def test_the_encoding_is_one_hot_by_method_then_logs_of_the_shape() -> None:
    """Two methods, then depth, breadth, tokens and the match type; unknown depth is the mean."""
    rows = encode(
        [
            SpecConfig.parse("NGRAM tokens=7 breadth=1 match=PROB"),
            SpecConfig.parse("EAGLE3 steps=3 topk=3 tokens=15 draft=/e"),
        ]
    )
    assert rows.tolist() == [[0, 1, 2, 1, 3, 1], [1, 0, 2, 2, 4, 0]]


def test_a_further_numeric_option_has_its_own_column() -> None:
    """Options outside the shape tell configurations apart too."""
    rows = encode(
        [SpecConfig.parse(f"NGRAM tokens=8 breadth=4 trie_depth={depth}") for depth in (1, 3)]
    )
    assert (rows[:, 4] == [1, 2]).all()
