"""Fixtures shared by all tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.fake_sglang import FakeSGLang

# A busy machine is no failure of the code.
settings.register_profile("autospec", deadline=None)
settings.load_profile("autospec")


@pytest.fixture
def fake_server() -> Iterator[FakeSGLang]:
    """A fake SGLang server that decodes plainly, in a thread."""
    with FakeSGLang() as server:
        yield server


@pytest.fixture
def fake_command() -> tuple[str, ...]:
    """What starts the fake server as a program; SGLang's flags follow."""
    return (sys.executable, str(Path(__file__).with_name("fake_sglang.py")))
