"""The chance to run: learned from failures, ordered by size."""

from __future__ import annotations

import numpy as np

from autospec.config import SpecConfig
from autospec.tune.feasibility import chance_to_run
from autospec.tune.shapes import Shape, shape_of

SIZES = {
    tokens: shape_of(SpecConfig("EAGLE3", 4, 8, tokens, "/e")) for tokens in (8, 16, 32, 64, 128)
}


def chances(tried: list[tuple[Shape, bool]]) -> list[float]:
    """By rising size."""
    return [float(chance) for chance in chance_to_run(list(SIZES.values()), tried)]


def test_before_anything_was_tried_all_are_likely_to_run() -> None:
    """What passed the offline check usually runs."""
    assert min(chances([])) > 0.9


def test_a_failure_speaks_against_larger_shapes_most() -> None:
    """Above it the chance is low, below it rises with the distance."""
    found = chances([(SIZES[32], False)])
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.4
    assert found[0] > 0.6


def test_a_success_speaks_for_smaller_shapes() -> None:
    """With a failure above and a success below, the border lies between."""
    found = chances([(SIZES[64], False), (SIZES[16], True)])
    assert found[0] > 0.9
    assert found[-1] < 0.5
    assert np.argmin(found) >= 3


def test_another_method_hardly_suffers() -> None:
    """A failure of one method leaves the others likely to run."""
    other = shape_of(SpecConfig("STANDALONE", 4, 8, 32, "/s"))
    assert chance_to_run([other], [(SIZES[32], False)])[0] > 0.75


def test_chances_are_chances() -> None:
    """Whatever failed and ran, they lie from 0 to 1."""
    tried = [(shape, bool(i % 2)) for i, shape in enumerate(SIZES.values())] * 10
    found = np.array(chances(tried))
    assert ((found >= 0) & (found <= 1)).all()
