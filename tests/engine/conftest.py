"""What the tests on the real engine share."""

from __future__ import annotations

from pathlib import Path

import pytest

from autospec import demo


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The demo model's folder, prepared in the user's own cache when it is not there yet."""
    return demo.model_path()
