"""SGLang's own check of its arguments, without starting a server.

It runs in a process of its own, since importing SGLang takes seconds and freezes what it reads
from the environment. ``python -m autospec.engine.offline OUT`` is that process: command lines as
JSON on its standard input, verdicts as JSON in the file OUT, because SGLang prints on standard
output. Only that process imports SGLang.

What SGLang does not notice here is in ``autospec.engine.constraints``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from autospec.errors import EngineError, EngineMissingError

__all__ = ["main", "validate"]

_MISSING: Final = "missing"
_VERDICTS: Final = "verdicts"
_REASON_CHARACTERS: Final = 400


def validate(
    argvs: Sequence[Sequence[str]], environment: Mapping[str, str], timeout_s: float
) -> list[str | None]:
    """Ask SGLang whether it accepts command lines of its server.

    Args:
        argvs: the arguments behind ``sglang.launch_server``.
        environment: variables laid over this process's own, as for the server; for a CPU they must
            hold ``autospec.engine.cpu.environment()``.
        timeout_s: seconds for all; the first takes about 10, each further one 0.03.

    Returns:
        For each command line None, or in one line why SGLang refuses it.

    Raises:
        EngineMissingError: SGLang cannot be imported with this environment.
        EngineError: the check took too long or died.
    """
    if not argvs:
        return []
    with tempfile.TemporaryDirectory(prefix="autospec-offline-") as folder:
        out = Path(folder, "verdicts.json")
        log = Path(folder, "log")
        with log.open("wb") as stream:
            try:
                process = subprocess.run(  # noqa: S603 - this interpreter and our own module
                    [sys.executable, "-P", "-m", __name__, str(out)],
                    input=json.dumps([list(argv) for argv in argvs]).encode(),
                    env={**os.environ, **environment},
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    timeout=timeout_s,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise EngineError(
                    f"SGLang's check of its arguments took more than {timeout_s:g} s"
                ) from None
        if not out.is_file():
            tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            raise EngineError(
                f"SGLang's check of its arguments died with exit code {process.returncode}: "
                f"{' '.join(tail)[:_REASON_CHARACTERS]}"
            )
        answer: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    if _MISSING in answer:
        raise EngineMissingError(f"SGLang cannot be imported: {answer[_MISSING]}")
    verdicts: list[str | None] = answer[_VERDICTS]
    return verdicts


def main() -> None:
    """Check the command lines on standard input; the body of the process of its own."""
    argvs: list[list[str]] = json.load(sys.stdin)
    answer: dict[str, Any]
    try:
        answer = {_VERDICTS: [_refusal(argv) for argv in argvs]}
    except ImportError as error:
        # Not the arguments' fault: no SGLang, or none that works on this device.
        answer = {_MISSING: _one_line(str(error))}
    out = Path(sys.argv[1])
    part = out.with_suffix(".part")
    part.write_text(json.dumps(answer), encoding="utf-8")
    part.replace(out)


def _refusal(argv: list[str]) -> str | None:
    from sglang.srt.server_args import prepare_server_args  # noqa: PLC0415 - this process only

    usage = io.StringIO()
    try:
        with contextlib.redirect_stderr(usage):
            args = prepare_server_args(argv)
        args.resolve_once()
        args.check_server_args()
    except ImportError:
        raise
    except SystemExit:
        last = usage.getvalue().strip().splitlines()[-1:]
        return _one_line(" ".join(last).partition("error: ")[2]) or "refused without a word"
    except Exception as error:  # noqa: BLE001 - whatever it raises is its answer
        return _one_line(str(error)) or _place(error)
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_REASON_CHARACTERS]


def _place(error: Exception) -> str:
    """Say where an error without a message was raised, with the line of code."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    code = _one_line(frame.line or "")
    return f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}: {code}"


if __name__ == "__main__":
    main()
