"""Normal distributions of several unknowns. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["root_of"]

Floats = NDArray[np.float64]


def root_of(covariance: Floats) -> Floats:
    """What turns standard normal draws into errors: ``root @ root.T`` is the covariance.

    Args:
        covariance: shape (n, n); what rounding left below 0 counts as 0.

    Returns:
        Shape (n, n).
    """
    values, vectors = np.linalg.eigh(covariance)
    root: Floats = vectors * np.sqrt(np.maximum(values, 0.0))
    return root
