"""A fake SGLang server that speaks real HTTP: in a thread (``FakeSGLang``) or as a program.

The program takes any of SGLang's flags. ``FAKE_SGLANG_STEP_S`` is the time of an idle step in s,
and ``FAKE_SGLANG_FAULT`` a comma-separated list of faults, each limited to one algorithm (``PLAIN``
without one) by a suffix ``@ALGORITHM``:

``crash_on:ALGO``, ``oom_on:ALGO``, ``hang_on:ALGO`` while starting; ``slow_start:SECONDS``;
``die_after:N`` requests; ``http500:N`` and ``drop:N`` refuse every N-th request or close its
connection without an answer; ``cut:N``, ``stall:N`` and ``garbage:N`` end every N-th stream after
its first chunk, send nothing more, or go on with broken JSON;
``hang:N`` and ``silent:N`` never answer every N-th request, or its stream after the headers;
``untrue:N`` says of drafts what cannot be true;
``no_plugin`` has it run without autospec's plugin, whose status it writes otherwise, and
``disobedient`` with one that takes no order;
``lossy:N`` and ``tied:N`` answer every N-th with other tokens, far less likely or nearly as likely.
"""

from __future__ import annotations

import sys

if not __package__:
    # As a program its own folder comes first, whose ``typing`` would hide Python's.
    sys.path[0] = __file__.rpartition("/tests/")[0]

import asyncio
import os
import signal
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from autospec.control.status import status_path
from autospec.errors import AutospecError
from autospec.plugin.asked import asked_for
from autospec.plugin.plan import EngineFacts, inactive, make_plan
from autospec.plugin.reporter import Reporter
from autospec.plugin.steering import Steering
from tests.fake_http import FakeServer, die, say
from tests.fake_model import parse_flags

__all__ = ["FakeSGLang"]


class FakeSGLang:
    """A fake server in a thread of its own, as a context manager; keywords are SGLang's settings.

    It listens on ``port``, by default on a free one.
    ``server`` counts what was asked of it: ``requests``, ``flushes`` and ``aborts``.
    """

    def __init__(self, faults: str = "", step_s: float = 0.002, **settings: Any) -> None:
        self.server = FakeServer({"model_path": "fake/model", **settings}, faults, step_s)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._port = int(settings.get("port", 0))
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        port = self._run(self.server.serve("127.0.0.1", self._port))
        self.url = f"http://127.0.0.1:{port}"
        self._start_up = asyncio.run_coroutine_threadsafe(self.server.start_up(), self._loop)
        if not {"hang_on", "slow_start"} & self.server.faults.keys():
            self._start_up.result(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._start_up.cancel()
        self._run(self.server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _run(self, job: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(job, self._loop).result(10)


def _pretend_plugin(server: FakeServer, port: int) -> None:
    """Report as the plugin does; a depth is switched where the tuner orders it, nothing else."""
    asked = asked_for(os.environ)
    if asked is None or server.algorithm == "PLAIN" or "no_plugin" in server.faults:
        return
    depth = int(server.settings["speculative_num_draft_tokens"]) - 1
    engine = EngineFacts(server.algorithm, depth)
    try:
        plan = make_plan(asked, engine)
    except AutospecError as error:
        plan = inactive(engine, error)
    steering = Steering(plan, depth)
    reporter = Reporter(steering, asked, engine, path=status_path(port))
    reporter.report()
    if plan.ordered is not None and "disobedient" not in server.faults:
        server.scheduler.choose = steering.choose
        reporter.start()


def _fail_to_start(error: str) -> None:
    say(f"[TP0] Scheduler hit an exception: Traceback (most recent call last):\n{error}\n")
    die("[TP0] Received sigquit from a child process. It usually means the child failed.")


async def _serve(server: FakeServer, host: str, port: int) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    try:
        await server.serve(host, port)
    except OSError:
        die(
            "[Errno 98] error while attempting to bind on address "
            f"('{host}', {port}): address already in use"
        )
    _pretend_plugin(server, port)
    starting = asyncio.create_task(server.start_up())
    starting.add_done_callback(lambda _: say("The server is fired up and ready to roll!"))
    await stopped.wait()
    starting.cancel()
    await server.close()


def main(argv: Sequence[str]) -> None:
    """Run as a program, with SGLang's exit codes and last words."""
    try:
        asked = parse_flags(argv)
    except KeyError as error:
        say(f"launch_server.py: error: unrecognized arguments: {error.args[0]}")
        sys.exit(2)
    step_s = float(os.environ.get("FAKE_SGLANG_STEP_S", "0.002"))
    try:
        server = FakeServer(asked, os.environ.get("FAKE_SGLANG_FAULT", ""), step_s)
    except RuntimeError as error:
        _fail_to_start(f"RuntimeError: {error}")
        return
    server.launch_command = " ".join(argv)
    if "crash_on" in server.faults:
        _fail_to_start("AssertionError: the draft worker broke")
    if "oom_on" in server.faults:
        _fail_to_start(
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
        )
    asyncio.run(_serve(server, asked.get("host", "127.0.0.1"), asked["port"]))


if __name__ == "__main__":
    main(sys.argv[1:])
