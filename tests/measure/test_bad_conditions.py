"""A pass over HTTP in which anything goes wrong fails soon, says what was lost, and has no figure.

Eight requests warm up, eight are measured, four at a time; the fault comes at the third of those.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autospec.engine.client import EngineClient
from autospec.engine.server import ServerProcess
from autospec.errors import AutospecError, EngineError, MeasureError
from autospec.measure.harness import Harness, PassPlan
from autospec.measure.split import Parts, split
from autospec.measurement import Request, RequestRecord
from tests.fake_sglang import FakeSGLang
from tests.measure.virtual import make_workload

TIMEOUT_S, STALL_TIMEOUT_S = 20.0, 2.0
#: What may pass from the fault to the end of the pass, beyond the timeout.
BEYOND_S = 10.0
WARMUP = PASS = 8
THIRD = WARMUP + 3
#: How the message of a pass begins.
WHERE = r"^tune, concurrency 4, repeat 0: "
Start = Callable[[str], ServerProcess]


@pytest.fixture
def parts() -> Parts:
    """Prompts enough for two a slot, with answers of at most 24 tokens."""
    return split(make_workload(40, tokens=24), 0, max_concurrency=4)


@pytest.fixture
def start(tmp_path: Path, fake_command: tuple[str, ...]) -> Iterator[Start]:
    """Starts the fake server as a program, so that it can die."""
    running: list[ServerProcess] = []

    def begin(fault: str) -> ServerProcess:
        server = ServerProcess(
            {"model_path": "fake/model", "max_running_requests": 16},
            environment={"FAKE_SGLANG_FAULT": fault, "FAKE_SGLANG_STEP_S": "0.02"},
            log_path=tmp_path / "server.log",
            timeout_s=30,
            command=fake_command,
        )
        running.append(server)
        server.start()
        return server

    yield begin
    for server in running:
        server.stop()


class Client(EngineClient):
    """A client that calls someone when it sends its n-th request."""

    def __init__(self, url: str, at: int = 0, act: Callable[[], None] = lambda: None) -> None:
        super().__init__(url, timeout_s=TIMEOUT_S, stall_timeout_s=STALL_TIMEOUT_S)
        self._at, self._act = at, act
        self.sent = 0

    async def generate(self, request: Request) -> RequestRecord:
        """As ever."""
        self.sent += 1
        if self.sent == self._at:
            self._act()
        return await super().generate(request)


def failure_of(client: Client, parts: Parts, timeout_s: float) -> AutospecError:
    """What the pass fails with, in time; no figure comes of it."""

    async def drive() -> None:
        async with client:
            harness = Harness(client, parts, plan=PassPlan((4,), requests_per_pass=PASS))
            await asyncio.wait_for(harness.run_pass("tune", 4, 0), 60)

    begin_s = time.monotonic()
    with pytest.raises(AutospecError) as caught:
        asyncio.run(drive())
    assert time.monotonic() - begin_s <= timeout_s + BEYOND_S
    return caught.value


@pytest.mark.parametrize(
    ("fault", "reason", "timeout_s"),
    [
        ("http500", "/generate: HTTP 500: Internal Server Error", 0),
        ("drop", "/generate: connection failed: Server disconnected", 0),
        ("cut", "/generate: connection failed: .+", 0),
        ("garbage", r"/generate: \d+ bytes that are not JSON", 0),
        ("stall", "/generate: the server stalled: no byte for 2 s", STALL_TIMEOUT_S),
    ],
)
def test_one_broken_answer_fails_the_pass(
    parts: Parts, fault: str, reason: str, timeout_s: float
) -> None:
    """One request of eight is lost: the message counts it, and those never answered for it."""
    with FakeSGLang(f"{fault}:{THIRD}", step_s=0.05) as fake:
        error = failure_of(Client(fake.url), parts, timeout_s)
        sent = len(fake.server.requests) - WARMUP
    assert isinstance(error, MeasureError)
    told = rf"{WHERE}1 of {PASS} requests were lost(, (\d) more were given up)?; the first with: "
    assert re.search(told + reason + "$", str(error))
    if fault != "stall":
        assert sent < PASS, "no request is sent after one was lost"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("http500", "HTTP 500: Internal Server Error"),
        ("drop", "connection failed: Server disconnected"),
        ("cut", "connection failed: .+"),
        ("garbage", r"\d+ bytes that are not JSON"),
        ("stall", "the server stalled: no byte for 2 s"),
    ],
)
def test_a_server_that_breaks_every_answer_fails_in_its_warm_up(
    parts: Parts, fault: str, reason: str
) -> None:
    """All slots are lost at once, the rest is not sent, and timeouts do not pile up."""
    with FakeSGLang(f"{fault}:1") as fake:
        error = failure_of(Client(fake.url), parts, STALL_TIMEOUT_S)
        assert len(fake.server.requests) <= 4
    assert isinstance(error, MeasureError)
    told = rf"^warm-up, concurrency 4: \d of {WARMUP} requests were lost, \d more were given up;"
    assert re.search(f"{told} the first with: /generate: {reason}$", str(error))


def test_a_server_that_dies_fails_the_pass_at_once(parts: Parts, start: Start) -> None:
    """Every request in flight is lost with its connection; no timeout is waited for."""
    server = start(f"die_after:{THIRD}")
    error = failure_of(Client(server.url), parts, 0)
    assert isinstance(error, MeasureError)
    told = rf"{WHERE}[1-4] of {PASS} requests were lost, [4-7] more were given up; the first with: "
    assert re.search(told + "/generate: connection failed: ", str(error))


def test_a_server_that_hangs_fails_the_pass_after_one_timeout(parts: Parts, start: Start) -> None:
    """A process that stands still takes connections and never answers: all slots are lost."""
    server = start("")
    client = Client(server.url, THIRD, lambda: os.kill(server.pid, signal.SIGSTOP))
    try:
        error = failure_of(client, parts, STALL_TIMEOUT_S)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert isinstance(error, MeasureError)
    told = rf"{WHERE}[1-4] of {PASS} requests were lost, [4-7] more were given up; the first with: "
    assert re.search(told + "/generate: the server stalled: no byte for 2 s$", str(error))
    assert client.sent <= WARMUP + 4


def test_a_server_that_trickles_fails_the_pass_at_its_whole_time(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks that keep coming do not stretch the time of a request."""
    monkeypatch.setattr("tests.measure.test_bad_conditions.TIMEOUT_S", 2.0)
    with FakeSGLang(step_s=0.5) as fake:
        error = failure_of(Client(fake.url), parts, 2.0)
    assert re.search("^warm-up, .* the first with: /generate: no answer within 2 s$", str(error))


@pytest.mark.parametrize("path", ["/flush_cache", "/v1/loads"])
def test_a_server_that_hangs_between_requests_fails_the_pass(
    parts: Parts, start: Start, path: str
) -> None:
    """What the harness asks beside its requests is bounded too."""
    server = start("")
    hung: list[str] = []

    class Hanging(Client):
        async def _call(self, method: str, asked: str, *rest: object) -> bytes:
            if asked.startswith(path) and not hung:
                hung.append(asked)
                os.kill(server.pid, signal.SIGSTOP)
            return await super()._call(method, asked, *rest)  # type: ignore[arg-type] # passed on

        async def flush(self, timeout_s: float = 1.0) -> None:
            await super().flush(timeout_s)

    try:
        error = failure_of(Hanging(server.url), parts, STALL_TIMEOUT_S)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert isinstance(error, EngineError)
    assert str(error).startswith(path)
