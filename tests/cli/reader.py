"""A reader who tries everything that a document shows, on the fake engine."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import Result

from autospec import schema
from autospec.control.costs import load_costs
from autospec.control.load import load_policy, make_controller
from autospec.control.trace import read_trace
from autospec.measure.workload import read_workload
from tests.cli import fake_autospec
from tests.cli.conftest import Run
from tests.cli.documents import ROOT, Block, DocumentError, check_other, parse_command
from tests.control.contract import SETTING

#: What makes seconds of minutes; the user's own words come first.
_SHORTER: Final = {
    "tune": (
        *("--device", "cpu", "--max-trials", "1", "--max-new-tokens", "8", "--concurrency", "1,4"),
        *("--requests-per-pass", "4", "--confirm-rounds", "1", "--lossless-prompts", "4"),
    ),
    "bench": ("--requests-per-pass", "4", "--max-new-tokens", "8"),
    "compare": ("--requests-per-pass", "4", "--max-new-tokens", "8"),
}
#: The doctor exits with 1 where something is missing on the machine of the test.
_CODES: Final = {"doctor": (0, 1)}

_PYTHON: Final = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
import pytest
from tests.cli import fake_autospec
with pytest.MonkeyPatch.context() as patches:
    fake_autospec.patch(patches)
    for name, code in json.load(sys.stdin):
        exec(compile(code, name, "exec"), globals())
"""
_SGLANG: Final = '''
"""Stands in for SGLang: it takes what the real one takes, and answers at once."""
from tests.cli.documents import require_engine_arguments

class Engine:
    def __init__(self, **arguments):
        require_engine_arguments(arguments)

    def generate(self, prompt, sampling_params):
        return {"text": "an answer"}

    def shutdown(self):
        pass
'''


class Reader:
    """Sits in a folder that has what the documents speak of; addresses stand for fake servers."""

    def __init__(
        self, folder: Path, run: Run, patches: pytest.MonkeyPatch, servers: Mapping[str, str]
    ) -> None:
        self.folder = folder
        self._run = run
        self._patches = patches
        self._servers = servers

    def read(self, blocks: Sequence[Block]) -> int:
        """Try every block in the order of the text; gives how many were tried.

        Raises:
            DocumentError: one of them does not do what it should.
        """
        for block in blocks:
            if block.language == "bash":
                for line in block.commands():
                    self._command(block, line)
            elif block.language == "yaml":
                self._yaml(block)
            elif block.language in {"json", "jsonl"}:
                self._json(block)
        python = [block for block in blocks if block.language == "python"]
        if python:
            self._python(python)
        return len(blocks)

    def _command(self, block: Block, line: str) -> None:
        line = self._substituted(block, self._placed(line))
        words = shlex.split(line, comments=True)
        with self._patches.context() as patches:
            while re.match(r"[A-Z_]+=", words[0]):
                name, _, value = words.pop(0).partition("=")
                patches.setenv(name, value)
                if name == "PYTHONPATH":
                    patches.syspath_prepend(self.folder / value)
            if words[0] == "env":
                words = [word for word in words[1:] if not re.match(r"[A-Z_]+=", word)]
            if words[0] == "autospec":
                self._autospec(block, words[1:])
                return
        check_other(words)
        if block.needs is None:
            raise DocumentError(
                f"{block}: {line}: was not run, so its block must say what it needs"
            )

    def _autospec(self, block: Block, words: list[str]) -> None:
        parse_command(words)
        if block.needs == "gpu":
            return
        if words[0] == "serve":
            own = ("--port", str(_free_port()), "--host", "127.0.0.1")
            self._until(block, _inserted(words, own), "ready")
            return
        if words[0] == "watch" and "--once" not in words:
            self._until(block, _inserted(words, ("--interval", "0.2")), "")
            return
        if "--demo" in words:
            # The demo brings its own device.
            words = [*words, *_SHORTER[words[0]][2:]]
        else:
            words = _inserted(words, _SHORTER.get(words[0], ()))
        result = self._run(*words)
        if result.exit_code not in _CODES.get(words[0], (0,)):
            raise DocumentError(f"{block}: autospec {shlex.join(words)}: {_said(result)}")

    def _until(self, block: Block, words: list[str], sign: str) -> None:
        """A command that does not end by itself: until it has said this, then as a user ends it."""
        command = [sys.executable, fake_autospec.__file__, *words]
        with subprocess.Popen(
            command,
            cwd=self.folder,
            text=True,
            stdout=subprocess.DEVNULL if words[0] == "serve" else subprocess.PIPE,
            stderr=subprocess.PIPE if words[0] == "serve" else subprocess.STDOUT,
        ) as process:
            said: list[str] = []
            ended = False
            for line in process.stderr or process.stdout or ():
                said.append(line)
                if line.startswith(sign) and not ended:
                    process.send_signal(signal.SIGINT)
                    ended = True
            process.wait(timeout=60)
        if process.returncode != 130 or not ended:
            raise DocumentError(f"{block}: autospec {shlex.join(words)}: {''.join(said)}")

    def _substituted(self, block: Block, line: str) -> str:
        """The line with the output of each ``$(autospec ...)`` in its place."""

        def output(match: re.Match[str]) -> str:
            program, *words = shlex.split(match[1])
            if program != "autospec":
                raise DocumentError(f"{block}: {line}: $({match[1]}) is not run here")
            result = self._run(*words)
            if result.exit_code != 0:
                raise DocumentError(f"{block}: {match[1]}: {_said(result)}")
            return result.stdout.strip()

        return re.sub(r"\$\(([^)]*)\)", output, line)

    def _python(self, blocks: Sequence[Block]) -> None:
        """All blocks of a document are one program, as a reader types them in."""
        stand_ins = self.folder / "stand-ins"
        stand_ins.mkdir(exist_ok=True)
        (stand_ins / "sglang.py").write_text(_SGLANG)
        program = [
            (str(block), "\n" * (block.line - 1) + self._placed(block.code)) for block in blocks
        ]
        paths = [str(ROOT), str(stand_ins)]
        done = subprocess.run(
            [sys.executable, "-c", _PYTHON, json.dumps(paths)],
            cwd=self.folder,
            input=json.dumps(program),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 0:
            raise DocumentError(done.stderr)

    def _yaml(self, block: Block) -> None:
        """A policy, or an excerpt of a shipped profile."""
        path = self.folder / "block.yaml"
        path.write_text(block.code)
        document = yaml.safe_load(block.code)
        if "kind" in document:
            with self._patches.context() as patches:
                patches.syspath_prepend(ROOT / "examples")
                make_controller(load_policy(path), SETTING)
            return
        shipped = [schema.read_yaml(file) for file in (ROOT / "profiles").glob("*.yaml")]
        if not any(_holds(whole, document) for whole in shipped):
            raise DocumentError(f"{block}: this is no policy, and in no shipped profile")

    def _json(self, block: Block) -> None:
        """A trace, a table of step times or prompts, by what the first line has."""
        path = self.folder / f"block.{block.language}"
        path.write_text(block.code)
        first = json.loads(block.code.splitlines()[0] if block.language == "jsonl" else block.code)
        if "algorithm" in first:
            read_trace(path)
        elif "step_time_ms" in first:
            load_costs(path)
        else:
            read_workload(path, default_max_new_tokens=8)

    def _placed(self, text: str) -> str:
        """The text with fake servers' addresses in the place of those that it names."""
        for named, real in self._servers.items():
            text = text.replace(named, real)
        return text


def _holds(whole: Any, part: Any) -> bool:
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and _holds(whole[key], item) for key, item in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return all(any(_holds(other, item) for other in whole) for item in part)
    return bool(whole == part)


def _inserted(words: list[str], more: Sequence[str]) -> list[str]:
    """The words with more options, before those that are passed on to SGLang; the last count."""
    where = words.index("--") if "--" in words else len(words)
    return [*words[:where], *more, *words[where:]]


def _said(result: Result) -> str:
    return f"exit code {result.exit_code}: {result.output} {result.exception or ''}"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
