"""Roots of covariances."""

from __future__ import annotations

import numpy as np
import pytest

from autospec.tune.normal import root_of


def test_a_root_gives_the_covariance_back() -> None:
    """Also where one unknown is a multiple of another."""
    half = np.array([[1.0, 0.0, 2.0], [0.5, 1.0, 1.0], [1.5, 1.0, 3.0]])
    covariance = half @ half.T
    root = root_of(covariance)
    assert (root @ root.T).ravel().tolist() == pytest.approx(covariance.ravel().tolist())
