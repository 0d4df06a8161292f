"""Fixtures shared by all tests."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from autospec import demo
from autospec.config import PLAIN
from tests.fake_sglang import FakeSGLang
from tests.real_engine import Answers, ask, serving, write_eagle

# A busy machine is no failure of the code.
settings.register_profile("autospec", deadline=None)
settings.load_profile("autospec")

# A shell starts its background jobs with SIGINT ignored, and what they start inherits that: tests
# that interrupt a command would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def fake_server() -> Iterator[FakeSGLang]:
    """A fake SGLang server that decodes plainly, in a thread."""
    with FakeSGLang() as server:
        yield server


@pytest.fixture
def fake_command() -> tuple[str, ...]:
    """What starts the fake server as a program; SGLang's flags follow."""
    return (sys.executable, str(Path(__file__).with_name("fake_sglang.py")))


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The demo model's folder, prepared in the user's own cache when it is not there yet."""
    return demo.model_path()


@pytest.fixture(scope="session")
def plain(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Plain decoding's answers, from a real server that the plugin knows nothing of."""
    log = tmp_path_factory.mktemp("logs") / "plain.log"
    with serving(demo_model, PLAIN, log) as (server, _):
        return asyncio.run(ask(server.url))


@pytest.fixture(scope="session")
def eagle_draft(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An EAGLE head with random weights for the demo model."""
    folder = tmp_path_factory.mktemp("eagle")
    write_eagle(demo_model, folder)
    return folder
