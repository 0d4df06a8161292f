"""Watching real HTTP: the fake server as it works, dies, comes back, refuses, or is another."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from autospec.config import PLAIN, SpecConfig
from autospec.control.status import PluginStatus, StatusEvent, write_status
from autospec.engine.client import EngineClient
from autospec.errors import EngineError, RequestError, WireError
from autospec.evidence import StepTime
from autospec.measurement import Request
from autospec.profile import Profile, Verdict
from autospec.watch import fit
from autospec.watch.known import know
from autospec.watch.run import Watching, watch, watch_once
from autospec.watch.view import View
from tests.fake_http import FakeServer
from tests.watch.made import chain_profile

CHAIN: dict[str, Any] = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
STEP_S = 0.002


@contextlib.asynccontextmanager
async def serving(port: int = 0, **settings: Any) -> AsyncIterator[tuple[FakeServer, int]]:
    """A fake server in this loop."""
    server = FakeServer({"model_path": "models/m", **settings}, step_s=STEP_S)
    port = await server.serve("127.0.0.1", port)
    await server.start_up()
    try:
        yield server, port
    finally:
        await server.close()


@contextlib.asynccontextmanager
async def busy(url: str, requests: int = 2, **how: Any) -> AsyncIterator[None]:
    """Requests of which one follows another, until the end of the block."""

    async def work(client: EngineClient, number: int) -> None:
        for turn in range(10**6):
            await client.generate(Request(0, tuple(range(number, number + 9 + turn % 7)), 400))

    async with EngineClient(url, **how) as client:
        tasks = [asyncio.create_task(work(client, number)) for number in range(requests)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def told(story: Callable[[], Awaitable[Any]]) -> Any:
    """What comes of a story, in time."""

    async def bounded() -> Any:
        async with asyncio.timeout(40):
            return await story()

    return asyncio.run(bounded())


async def until(views: AsyncIterator[View], holds: Callable[[View], bool]) -> View:
    """The first view of which something holds."""
    async for view in views:
        if holds(view):
            return view
    raise AssertionError("watching ended")


def fake_profile(slow: float = 1.0) -> Profile:
    """A profile of the fake server's chain, with its own step times times a factor."""
    config = SpecConfig("EAGLE3", num_steps=3, topk=1, num_draft_tokens=4)
    ms = STEP_S * 1000 * slow
    rows = [
        StepTime(config_of, load, load, ms * (1 + drafting + 0.04 * load * tokens), 100)
        for config_of, tokens, drafting in ((PLAIN, 1, 0.0), (config, 4, 0.36))
        for load in (1, 4)
    ]
    base = chain_profile()
    return replace(
        base,
        verdict=Verdict("faster", "it is", "confirm", config),
        step_times=tuple(rows),
        acceptance=(),
    )


def test_one_look_at_a_working_server() -> None:
    """Two readings an interval apart give everything that can be known."""

    async def story() -> View:
        async with serving(**CHAIN) as (_, port):
            url = f"http://127.0.0.1:{port}"
            async with busy(url):
                await asyncio.sleep(0.3)
                known = know(fake_profile(), Path("p.yaml"))
                return await watch_once(Watching(url, interval_s=0.5, known=known))

    view = told(story)
    assert view.state == "speculating"
    assert view.depth == 3
    assert view.server is not None
    assert view.server.config == "EAGLE3 steps=3 topk=1 tokens=4"
    assert view.window is not None
    assert view.window.accept_length > 1.2
    assert 0.5 <= view.window.batch_size <= 2
    assert view.break_even is not None
    assert 1.2 < view.break_even < 2
    assert view.vs_plain == pytest.approx(view.window.accept_length / view.break_even)


def test_one_look_waits_for_a_step_of_a_slow_server() -> None:
    """A step takes three intervals; each look sees one all the same."""

    async def story() -> list[View]:
        async with serving(**CHAIN) as (server, port):
            server.scheduler._step_s = 0.2
            url = f"http://127.0.0.1:{port}"
            async with busy(url):
                await asyncio.sleep(0.5)
                return [await watch_once(Watching(url, interval_s=0.1)) for _ in range(4)]

    assert [view.window is not None for view in told(story)] == [True] * 4


def test_an_idle_server_without_a_profile_says_what_it_is() -> None:
    """No step, no figure, no error."""

    async def story() -> View:
        async with serving() as (_, port):
            return await watch_once(Watching(f"http://127.0.0.1:{port}", interval_s=0.01))

    view = told(story)
    assert (view.state, view.running, view.window, view.drift) == ("plain", 0, None, None)
    assert view.throughput == 0


def test_a_server_dies_and_another_comes_to_its_place() -> None:
    """Gone while it is, then found; its counters begin anew and nothing is mixed."""

    async def story() -> tuple[View, View]:
        async with contextlib.AsyncExitStack() as stack:
            first = await stack.enter_async_context(contextlib.AsyncExitStack())
            _, port = await first.enter_async_context(serving(**CHAIN))
            asked = Watching(f"http://127.0.0.1:{port}", interval_s=0.02)
            views = await stack.enter_async_context(contextlib.aclosing(watch(asked)))
            async with busy(asked.url):
                await until(views, lambda view: view.window is not None)
            await first.aclose()
            gone = await until(views, lambda view: view.state == "gone")
            await stack.enter_async_context(serving(port))
            return gone, await until(views, lambda view: view.state == "plain")

    gone, back = told(story)
    assert gone.server is not None
    assert "connection failed" in gone.reason
    kinds = [event.kind for event in back.events]
    assert kinds[0] in {"restarted", "found"}
    assert "gone" in kinds
    assert back.server is not None
    assert back.server.config == "PLAIN"


def test_watching_may_begin_before_the_server_does() -> None:
    """A server that is not there is shown as gone; looking once is an error."""

    async def story() -> View:
        async with serving() as (_, port):
            pass
        asked = Watching(f"http://127.0.0.1:{port}", interval_s=0.02)
        with pytest.raises(RequestError, match=rf"{asked.url}: .*connection failed"):
            await watch_once(asked)
        async with contextlib.aclosing(watch(asked)) as views:
            await until(views, lambda view: view.state == "gone")
            async with serving(port):
                return await until(views, lambda view: view.state != "gone")

    assert [event.kind for event in told(story).events] == ["found", "gone"]


def test_a_server_with_a_key_is_watched_with_it_and_asks_for_it() -> None:
    """The message names the way to give one, and no key."""

    async def story() -> View:
        async with serving(api_key="secret") as (_, port):
            asked = Watching(f"http://127.0.0.1:{port}", interval_s=0.02)
            for key in (None, "wrong-key"):
                with pytest.raises(EngineError, match="asks for an API key") as caught:
                    async for _ in watch(replace(asked, api_key=key)):
                        pass
                assert "wrong-key" not in str(caught.value)
            return await watch_once(replace(asked, api_key="secret"))

    assert told(story).state == "plain"


@pytest.mark.parametrize(
    ("body", "status"), [("hello", 200), ("{}", 200), ("[1]", 200), ("no such page", 404)]
)
def test_what_is_no_sglang_server_ends_watching_with_one_line(body: str, status: int) -> None:
    """Whatever it answers."""

    async def story() -> None:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(text=body, status=status)

        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            with pytest.raises(WireError, match="is no SGLang server") as caught:
                async for _ in watch(Watching(url)):
                    pass
            assert "\n" not in str(caught.value)
        finally:
            await runner.cleanup()

    told(story)


def test_the_prometheus_page_is_read_where_there_is_one() -> None:
    """Tokens are counted from it; a server without one is not asked."""

    async def story() -> tuple[View, list[str]]:
        async with serving(enable_metrics=True, **CHAIN) as (server, port):
            url = f"http://127.0.0.1:{port}"
            async with busy(url):
                await asyncio.sleep(0.2)
                view = await watch_once(Watching(url, interval_s=0.5))
            return view, server.paths

    view, paths = told(story)
    assert "/metrics" in paths
    assert view.throughput > 100
    assert view.throughput != 40.0, "the fake server's own figure"


def test_a_page_that_fails_is_a_note_and_no_more() -> None:
    """The server answers all the same."""

    async def story() -> View:
        async with serving(**CHAIN) as (server, port):
            server.settings["enable_metrics"] = True
            return await watch_once(Watching(f"http://127.0.0.1:{port}", interval_s=0.01))

    view = told(story)
    assert view.state == "unknown"
    assert view.notes == ("/metrics: HTTP 404: 404: Not Found",)


def test_a_plugin_on_this_machine_is_read_while_its_process_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the port, in the user's cache; the file of a server that was killed is passed over."""
    monkeypatch.setenv("AUTOSPEC_CACHE", str(tmp_path))
    status = PluginStatus(
        active=True,
        reason="it decides",
        pid=os.getpid(),
        updated_s=time.time(),
        depths=(0, 3),
        depth=0,
        decisions=(StatusEvent(7, 1, 0, "0.80x of plain decoding"),),
    )

    async def story() -> None:
        async with serving(**CHAIN) as (_, port):
            path = tmp_path / "status" / f"{port}.json"
            write_status(path, status)
            asked = Watching(f"http://127.0.0.1:{port}", interval_s=0.01)
            view = await watch_once(asked)
            assert (view.state, view.depth) == ("plain", 0)
            assert view.decisions == status.decisions
            # The largest pid that Linux gives is below this.
            write_status(path, replace(status, pid=2**22 + 1))
            view = await watch_once(asked)
            assert view.decisions == ()
            assert view.state == "unknown"
            path.write_text("{")
            view = await watch_once(asked)
            assert len(view.notes) == 1
            assert "not JSON" in view.notes[0]

    told(story)


def test_a_status_file_that_the_user_names_is_believed_or_missed(tmp_path: Path) -> None:
    """It may be of a server on another machine, so its process is not looked for."""
    path = tmp_path / "status.json"

    async def story() -> None:
        async with serving(**CHAIN) as (_, port):
            asked = Watching(f"http://127.0.0.1:{port}", interval_s=0.01, status_file=path)
            view = await watch_once(asked)
            assert view.notes == (f"{path}: cannot be read (No such file or directory)",)
            write_status(
                path, PluginStatus(True, "decides", 2**22 + 1, 0.0, depth=3, depths=(0, 3))
            )
            view = await watch_once(asked)
            assert (view.state, view.depth, view.notes) == ("speculating", 3, ())

    told(story)


def test_drift_runs_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile of steps half as long: the alarm comes, and the command gets it."""
    monkeypatch.setattr(fit, "Drift", _quick_drift)
    out = tmp_path / "event.json"
    command = ["tee", str(out)]

    async def story() -> View:
        async with serving(**CHAIN) as (_, port):
            url = f"http://127.0.0.1:{port}"
            known = know(fake_profile(0.5), Path("p.yaml"))
            asked = Watching(url, interval_s=0.05, known=known, command=command)
            async with busy(url), contextlib.aclosing(watch(asked)) as views:
                await until(views, lambda view: view.drift is not None and bool(view.drift.command))
                return await until(views, lambda view: view.events[0].kind == "command")

    view = told(story)
    assert view.events[0].text == "on drift: done"
    event = json.loads(out.read_text())
    assert event["kind"] == "drift"
    assert event["command"].startswith("autospec tune models/m")
    assert "a step takes" in event["text"]


def test_a_server_that_fits_raises_no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same course against its own step times."""
    monkeypatch.setattr(fit, "Drift", _quick_drift)

    async def story() -> View:
        async with serving(**CHAIN) as (_, port):
            url = f"http://127.0.0.1:{port}"
            asked = Watching(url, interval_s=0.05, known=know(fake_profile(), Path("p.yaml")))
            async with busy(url), contextlib.aclosing(watch(asked)) as views:
                return await until(
                    views, lambda view: view.drift is not None and view.drift.blocks >= 30
                )

    view = told(story)
    assert view.drift is not None
    assert view.drift.verdict == "fits"
    assert [event.kind for event in view.events] == []


def _quick_drift(*arguments: Any, **keywords: Any) -> Any:
    """Blocks that a fake server fills in no time."""
    from autospec.control.drift import Drift

    return Drift(*arguments, **keywords, block_steps=10, block_s=0.0)
