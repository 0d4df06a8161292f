"""``autospec watch`` through the front door."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from autospec.cli import cli
from autospec.profile import save_profile
from tests.fake_sglang import FakeSGLang
from tests.watch.test_run import CHAIN, STEP_S, fake_profile


def run(*arguments: object) -> Result:
    """The command."""
    return CliRunner().invoke(cli, ["watch", *map(str, arguments)])


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No status file of another server on the same port, and no key of the user's."""
    monkeypatch.setenv("AUTOSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("AUTOSPEC_API_KEY", raising=False)


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A profile of the fake server's chain."""
    path = tmp_path / "p.yaml"
    save_profile(path, fake_profile())
    return path


@contextmanager
def busy(url: str) -> Iterator[None]:
    """One request after another, until the end of the block."""
    ended = threading.Event()

    def work() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            sampling = {"max_new_tokens": 200, "ignore_eos": True}
            body = {"input_ids": list(range(number, number + 9)), "sampling_params": sampling}
            request = urllib.request.Request(
                f"{url}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=10) as answer:
                answer.read()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(20)


def test_once_as_json_is_one_document(profile: Path) -> None:
    """Everything that a script may ask for, and nothing else on standard output."""
    with FakeSGLang(step_s=STEP_S, **CHAIN) as fake, busy(fake.url):
        result = run(fake.url, "--profile", profile, "--once", "--json", "--interval", "0.5")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert next(iter(document)) == "schema"
    assert document["state"] == "speculating"
    assert document["depth"] == 3
    assert document["running"] in {0, 1}, "between two requests there is none"
    assert document["window"]["accept_length"] > 1.2
    assert document["break_even"] > 1.2
    assert document["vs_plain"] > 0.8
    assert document["drift"]["verdict"] == "unjudged"


def test_once_is_a_picture_of_80_columns(profile: Path) -> None:
    """The same for a person."""
    with FakeSGLang(step_s=STEP_S, **CHAIN) as fake, busy(fake.url):
        result = run(fake.url, "--profile", profile, "--once", "--interval", "0.3")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    for said in ("speculating at depth 3", "running of 48", "break-even", "of plain", "ms each"):
        assert said in result.stdout


def test_without_a_profile_it_shows_what_the_server_says() -> None:
    """No figure that rests on a profile, and no complaint."""
    with FakeSGLang() as fake:
        result = run(fake.url, "--once", "--json", "--interval", "0.01")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["state"], document["running"], document["notes"]) == ("plain", 0, [])
    assert document.keys() & {"break_even", "vs_plain", "drift", "window"} == set()


def test_a_profile_of_another_server_is_said_to_be(profile: Path) -> None:
    """Break-even and drift would be another server's."""
    with FakeSGLang(**{**CHAIN, "speculative_algorithm": "STANDALONE"}) as fake:
        result = run(fake.url, "--profile", profile, "--once", "--json", "--interval", "0.01")
    document = json.loads(result.stdout)
    assert "the server runs STANDALONE" in document["notes"][0]
    assert "break_even" not in document


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("localhost:1",), 2, "address must be like http://host:port"),
        (("http://127.0.0.1:9", "--once"), 1, "http://127.0.0.1:9: /v1/loads"),
        (("http://127.0.0.1:9", "--once", "--exec", "true"), 2, "leave out --once"),
        (("http://127.0.0.1:9", "--exec", "no-such-program-here"), 2, "there is no program"),
        (("http://127.0.0.1:9", "--exec", "echo 'x"), 2, "cannot be read"),
        (("http://127.0.0.1:9", "--interval", "0"), 2, "must be above zero"),
        (("http://127.0.0.1:9", "--profile", "missing.yaml"), 2, "missing.yaml: cannot be read"),
        (("http://127.0.0.1:9", "--api-key-env", "NO_SUCH"), 2, "no such environment variable"),
    ],
)
def test_what_cannot_be_done_is_one_line(arguments: tuple[str, ...], code: int, says: str) -> None:
    """With the exit code of its kind, and no traceback."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_key_comes_from_the_environment_and_is_never_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for ``bench --url``; a wrong one is refused with the way to give a right one."""
    with FakeSGLang(api_key="secret-key") as fake:
        arguments = (fake.url, "--once", "--json", "--interval", "0.01")
        result = run(*arguments)
        assert result.exit_code == 1
        assert "--api-key-env" in result.stderr
        monkeypatch.setenv("AUTOSPEC_API_KEY", "wrong-key")
        result = run(*arguments)
        assert result.exit_code == 1
        assert "wrong-key" not in result.output
        monkeypatch.setenv("AUTOSPEC_API_KEY", "secret-key")
        result = run(*arguments)
        assert result.exit_code == 0
        assert "secret-key" not in result.output


def test_ctrl_c_ends_it_as_it_ends_every_command(profile: Path) -> None:
    """Lines until then, each a whole document; exit code 130, nothing left behind."""
    with FakeSGLang(step_s=STEP_S, **CHAIN) as fake:
        command = [sys.executable, "-c", "from autospec.cli import main; main()", "watch", fake.url]
        command += ["--json", "--profile", str(profile), "--interval", "0.05", "--exec", "sleep 60"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
        ) as process:
            assert process.stdout is not None
            lines = [json.loads(process.stdout.readline()) for _ in range(3)]
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=20)
    assert [line["schema"] for line in lines] == [1, 1, 1]
    assert process.returncode == 130
    assert errors.strip() == "interrupted"


def test_time_is_not_wasted_on_loading_engines() -> None:
    """A look needs neither SGLang nor PyTorch."""
    code = (
        "import sys; from autospec.cli import cli\n"
        "try: cli(['watch', 'http://127.0.0.1:9', '--once'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'sglang', 'skopt', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_other_looks_do_not_begin_before_the_interval_is_over() -> None:
    """A server is not asked more often than the user wants."""
    with FakeSGLang() as fake:
        begin = time.monotonic()
        run(fake.url, "--once", "--interval", "0.4")
        assert time.monotonic() - begin >= 0.4
        assert fake.server.paths.count("/v1/loads") == 2
