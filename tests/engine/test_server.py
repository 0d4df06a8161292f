"""Launching the fake server as a program: readiness, failures with their cause, a clean end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from autospec.engine import ports
from autospec.engine import server as server_module
from autospec.engine.client import EngineClient
from autospec.engine.server import ServerProcess
from autospec.errors import (
    EngineError,
    EngineMissingError,
    LaunchError,
    LaunchTimeoutError,
    OutOfMemoryError,
    PortTakenError,
    ServerDiedError,
    StorageError,
)
from autospec.measurement import Request
from tests.fake_sglang import FakeSGLang

Start = Callable[..., ServerProcess]
ARGS = {"model_path": "fake/model", "max_running_requests": 16}


@pytest.fixture
def server(tmp_path: Path, fake_command: tuple[str, ...]) -> Start:
    """Makes a server process that runs the fake, not started yet."""

    def make(args: dict[str, Any] | None = None, fault: str = "", **options: Any) -> ServerProcess:
        chosen: dict[str, Any] = {
            "environment": {"FAKE_SGLANG_FAULT": fault},
            "log_path": tmp_path / "logs" / "server.log",
            "timeout_s": 30,
            "command": fake_command,
        }
        return ServerProcess({**ARGS, **(args or {})}, **(chosen | options))

    return make


def info_of(url: str) -> Any:
    """What a server says about itself."""

    async def run() -> Any:
        async with EngineClient(url, timeout_s=10) as client:
            return await client.server_info()

    return asyncio.run(run())


def answer(url: str, times: int = 1) -> list[Any]:
    """Records of a few requests, one after another."""

    async def run() -> list[Any]:
        async with EngineClient(url, timeout_s=10) as client:
            return [await client.generate(Request(0, (5, 6, 7), 8)) for _ in range(times)]

    return asyncio.run(run())


def test_a_server_is_ready_inside_its_block_and_gone_after(server: Start) -> None:
    """It answers as what it was started as, and its process ends with the block."""
    with server({"page_size": 1, "speculative_algorithm": "NGRAM"}) as process:
        assert process.alive()
        info = info_of(process.url)
        pid = process.pid
        assert psutil.Process(pid).is_running()
        assert process.launch_s is not None
        assert 0 < process.launch_s < 30
        process.check()
    assert info.resolved["port"] == process.port
    assert info.resolved["speculative_algorithm"] == "NGRAM"
    assert "--page-size 1" in info.launch_command
    assert not process.alive()
    assert not psutil.pid_exists(pid)
    assert "fired up" in process.log_tail()


def test_programs_beside_the_interpreter_are_found(server: Start) -> None:
    """SGLang calls ninja, also where nobody activated the environment that holds it."""
    with server() as process:
        first, _, _ = psutil.Process(process.pid).environ()["PATH"].partition(os.pathsep)
    assert first == str(Path(sys.executable).parent)


def test_stopping_twice_or_before_the_start_is_nothing(server: Start) -> None:
    """``stop`` may be called at any time, and a stopped server did not die."""
    process = server()
    process.stop()
    assert not process.alive()
    process.start()
    process.stop()
    process.stop()
    process.check()
    assert not process.alive()


def test_a_server_may_be_started_again(server: Start) -> None:
    """After a stop the same object starts a new process; while it runs it does not."""
    process = server()
    with process:
        first = process.pid
        with pytest.raises(EngineError, match="is running already"):
            process.start()
    with process:
        assert process.pid != first
        assert answer(process.url)[0].error is None


def test_ports_are_free_and_below_those_of_outgoing_connections(server: Start) -> None:
    """Without a wish the port is one that no outgoing connection will take meanwhile."""
    with server() as process:
        assert 21000 <= process.port < 30000
        assert not ports._is_free("127.0.0.1", process.port)


def test_a_port_in_use_is_refused_before_anything_starts(server: Start, tmp_path: Path) -> None:
    """The error names the port, and no log was begun."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"port {port} on 127.0.0.1 is in use"):
            server(port=port).start()
    assert not (tmp_path / "logs").exists()


def test_the_port_may_come_with_the_settings(server: Start) -> None:
    """A port among the settings counts as asked for."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with server({"port": port}) as process:
        assert process.port == port


def test_a_stale_server_is_not_taken_for_ours(
    server: Start, fake_server: FakeSGLang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another server answers on the port, the launch fails instead of measuring that one."""
    monkeypatch.setattr(ports, "_is_free", lambda host, port: True)
    port = int(fake_server.url.rpartition(":")[2])
    with pytest.raises(PortTakenError, match=f"port {port}"):
        server(port=port).start()


def test_a_free_port_lost_to_another_process_is_given_up_for_the_next(
    server: Start, fake_server: FakeSGLang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asked for that port; two servers that start at once must not fail for it."""
    lost = int(fake_server.url.rpartition(":")[2])
    free = ports.choose_port("127.0.0.1")
    choices = iter((lost, free))
    monkeypatch.setattr(server_module, "choose_port", lambda *_: next(choices))
    with server() as process:
        assert process.port == free
        assert answer(process.url)[0].error is None


def test_an_interrupted_look_at_the_guard_leaves_a_server_that_can_be_stopped(
    server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C inside ``Popen.poll`` keeps its lock for ever; nothing here may wait for that."""
    monkeypatch.setattr(server_module, "_GUARD_S", 1.0)
    monkeypatch.setattr(server_module, "_REAP_S", 0.1)
    process = server(grace_s=0.5)
    process.start()
    guard, pid = process._guard, process.pid
    assert guard is not None
    guard._waitpid_lock.acquire()  # type: ignore[attr-defined]  # as the interrupt leaves it
    assert process.alive()
    process.stop()
    assert not process.alive()
    assert not psutil.pid_exists(pid)
    guard._waitpid_lock.release()  # type: ignore[attr-defined]  # lets the child be reaped
    guard.wait(10)


def test_a_port_taken_during_the_launch_is_told_at_once(
    server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang notices a taken port late and lingers; its log line is enough."""
    monkeypatch.setattr(ports, "_is_free", lambda host, port: True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = server(port=port)
        monkeypatch.setattr(process, "_says_ready", lambda: False)
        with pytest.raises(PortTakenError, match=f"listens on 127.0.0.1 port {port}"):
            process.start()
    assert not process.alive()


def test_no_free_port_is_told(server: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a free port gets a sentence, not an endless search."""
    monkeypatch.setattr(ports, "_is_free", lambda host, port: False)
    with pytest.raises(PortTakenError, match="no free port found from 21000 to 29999"):
        server().start()


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        ("crash_on:NGRAM", LaunchError, "AssertionError: the draft worker broke"),
        ("oom_on:NGRAM", OutOfMemoryError, "nothing is left for the KV cache"),
    ],
)
def test_a_failing_launch_raises_its_cause_at_once(
    server: Start, fault: str, kind: type[LaunchError], message: str
) -> None:
    """The cause is found in the log, whose end the error carries; nothing stays behind."""
    process = server({"speculative_algorithm": "NGRAM"}, fault, timeout_s=600)
    with pytest.raises(kind, match=message) as caught:
        process.start()
    assert type(caught.value) is kind
    assert "Scheduler hit an exception" in caught.value.log_tail
    assert not process.alive()
    assert process.launch_s is None


def test_faults_of_one_algorithm_leave_the_others_alone(server: Start) -> None:
    """A fault of one arm does not touch plain decoding."""
    with server(fault="crash_on:NGRAM,die_after:0@EAGLE3") as process:
        assert answer(process.url)[0].error is None


def test_unknown_flags_and_algorithms_are_told(server: Start) -> None:
    """What SGLang says about its command line comes out in one line."""
    with pytest.raises(LaunchError, match="refused its flags: unrecognized arguments: --no-such"):
        server({"no_such": 1}).start()
    with pytest.raises(LaunchError, match="SGLang has no algorithm FOO"):
        server({"speculative_algorithm": "FOO"}).start()


def test_a_tree_that_cannot_be_filled_is_told(server: Start) -> None:
    """SGLang notices this only when it drafts."""
    shape = {"speculative_num_steps": 2, "speculative_eagle_topk": 2}
    args = {"speculative_algorithm": "EAGLE", "speculative_num_draft_tokens": 16, **shape}
    with pytest.raises(LaunchError, match="more tokens than steps and topk can propose"):
        server(args).start()


def test_a_hung_launch_runs_into_its_timeout(server: Start) -> None:
    """A server that is neither ready nor dead is given up, and gone."""
    process = server(fault="hang_on:PLAIN", timeout_s=1.5)
    with pytest.raises(LaunchTimeoutError, match=r"not ready after 1\.5 s"):
        process.start()
    assert not process.alive()
    assert not psutil.pid_exists(process.pid)


def test_a_slow_launch_is_waited_for(server: Start) -> None:
    """Not ready yet is not a failure."""
    with server(fault="slow_start:1") as process:
        assert process.launch_s is not None
        assert process.launch_s >= 1


def test_a_line_after_which_nothing_helps_ends_the_wait(tmp_path: Path) -> None:
    """A server that lingers after its fatal line is not waited for."""
    code = (
        "import sys, time; print('Scheduler hit an exception: Traceback (most recent call last):"
        "\\nKeyError: 3', flush=True); time.sleep(600)"
    )
    command = (sys.executable, "-c", code)
    process = ServerProcess({}, log_path=tmp_path / "log", timeout_s=600, command=command)
    with pytest.raises(LaunchError, match="KeyError: 3"):
        process.start()
    assert not psutil.pid_exists(process.pid)


def test_a_missing_sglang_is_its_own_error(tmp_path: Path) -> None:
    """Without SGLang the message says what to install."""
    # Isolated, a Python without site-packages cannot find it.
    command = (sys.executable, "-I", "-S", "-m", "sglang.launch_server")
    process = ServerProcess({}, log_path=tmp_path / "log", command=command)
    with pytest.raises(EngineMissingError, match=r"install sglang-autospec\[sglang\]"):
        process.start()


def test_a_missing_program_is_told(tmp_path: Path) -> None:
    """A launch command that does not exist is named; there is no process id."""
    process = ServerProcess({}, log_path=tmp_path / "log", command=("/no/such/server",))
    with pytest.raises(LaunchError, match="/no/such/server: No such file or directory"):
        process.start()
    with pytest.raises(EngineError, match="was not started"):
        _ = process.pid


def test_a_log_that_cannot_be_written_is_told(server: Start, tmp_path: Path) -> None:
    """The log's place is named before anything starts."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/server\.log: cannot be written"):
        server(log_path=tmp_path / "file" / "server.log").start()


def test_a_server_that_dies_is_noticed_with_its_last_words(server: Start) -> None:
    """The request fails, and ``check`` tells why, with the log's end."""
    with server(fault="die_after:2") as process:
        records = answer(process.url, 3)
        assert [record.error is None for record in records] == [True, True, False]
        deadline = time.monotonic() + 10
        while process.alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        with pytest.raises(ServerDiedError, match="the server died: ") as caught:
            process.check()
    assert "SIGQUIT received" in caught.value.log_tail


def test_a_dying_server_counts_as_dead(server: Start) -> None:
    """SGLang lives on for seconds after its scheduler's death; that is dead already."""
    with server() as process:
        with process.log_path.open("a") as log:
            log.write(
                "Scheduler hit an exception: Traceback (most recent call last):\nKeyError: 4\n"
            )
        with pytest.raises(ServerDiedError, match="KeyError: 4"):
            process.check()


def test_a_killed_guard_is_noticed_and_cleaned_up_after(server: Start) -> None:
    """Even without its guard no process of the server stays."""
    process = server()
    process.start()
    assert process._guard is not None
    process._guard.kill()
    process._guard.wait(10)
    process.stop()
    deadline = time.monotonic() + 10
    while psutil.pid_exists(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not psutil.pid_exists(process.pid)


def test_an_interrupt_during_the_launch_leaves_nothing(
    server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while waiting stops the server and goes on up."""
    process = server(fault="hang_on:PLAIN")

    def interrupt() -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "_says_ready", interrupt)
    with pytest.raises(KeyboardInterrupt):
        process.start()
    assert not process.alive()
    assert not psutil.pid_exists(process.pid)


def test_secrets_are_masked_in_the_log_tail(server: Start) -> None:
    """The log may hold the key; what is shown of it does not."""
    with server({"api_key": "hush-hush"}) as process:
        with process.log_path.open("a") as log:
            log.write("server_args=ServerArgs(api_key='hush-hush')\n")
        assert process.log_tail(1) == "server_args=ServerArgs(api_key='***')"
    assert process.log_path.stat().st_mode & 0o077 == 0


def test_a_terminal_interrupt_does_not_reach_the_server(tmp_path: Path) -> None:
    """Ctrl-C goes to the program's process group; the server ends by the program, not by it."""
    script = tmp_path / "program.py"
    fake = Path(__file__).parents[1] / "fake_sglang.py"
    script.write_text(
        "import sys, time\nfrom pathlib import Path\n"
        "from autospec.engine.server import ServerProcess\n"
        f"command = (sys.executable, {str(fake)!r})\n"
        f"log = Path({str(tmp_path / 'log')!r})\n"
        "with ServerProcess({'model_path': 'm'}, log_path=log, command=command) as server:\n"
        "    try:\n        print(server.pid, flush=True)\n        time.sleep(600)\n"
        "    except KeyboardInterrupt:\n        print(server.alive(), flush=True)\n"
    )
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        os.killpg(program.pid, signal.SIGINT)
        assert program.stdout.readline() == b"True\n"
        assert program.wait(30) == 0
    assert not psutil.pid_exists(pid)
