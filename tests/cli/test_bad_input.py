"""Bad input: one clear line, exit 1 or 2, nothing launched and nothing left behind."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from autospec.engine import capabilities
from autospec.tune.study import Study
from autospec.tuning import prepare
from tests.cli.conftest import Run, write_model


def refused(run: Run, *arguments: object, code: int = 2) -> str:
    """Run, expect a refusal in one line and no study; returns the line."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert not Path("study").exists()
    *_, line = result.stderr.strip().splitlines()
    assert line.startswith("Error: ")
    return line


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "is empty"),
        (b"\xff\xfe{}", "UTF-8"),
        (b'{"prompt": "a"}\n{"prompt": ', "line 2"),
        (b'{"prompt": 7}\n', "prompt"),
        (b'{"messages": [{"role": "user"}]}\n', "messages[0].content"),
        (b'{"prompt": "a", "max_new_tokens": "x"}\n', "max_new_tokens"),
        (b'{"prompt": "a"}\n', "1 different prompts"),
    ],
)
def test_unusable_prompt_files(
    run: Run, tune_arguments: list[object], prompts: Path, content: bytes, named: str
) -> None:
    """File, line and field are named."""
    prompts.write_bytes(content)
    line = refused(run, *tune_arguments)
    assert prompts.name in line
    assert named in line


def test_missing_prompt_file(run: Run, tune_arguments: list[object], prompts: Path) -> None:
    """A path that does not exist is named."""
    prompts.unlink()
    assert "prompts.jsonl" in refused(run, *tune_arguments)


def test_prompt_longer_than_the_context(run: Run, tune_arguments: list[object]) -> None:
    """The server's tokenizer decides; the prompt's line and both numbers are named."""
    result = run(*tune_arguments, "--context-length", 20)
    assert result.exit_code == 2
    assert "line " in result.stderr
    assert "12 new ones are" in result.stderr


def test_draft_with_another_vocabulary(
    run: Run, tune_arguments: list[object], tmp_path: Path
) -> None:
    """Both sizes are named before anything is launched."""
    draft = write_model(tmp_path / "draft", vocab_size=100)
    line = refused(run, *tune_arguments, "--draft", f"STANDALONE={draft}")
    assert "100" in line
    assert "32000" in line


def test_missing_draft(run: Run, tune_arguments: list[object]) -> None:
    """A draft that is not there is named."""
    assert "/no/draft" in refused(run, *tune_arguments, "--draft", "STANDALONE=/no/draft")


@pytest.mark.parametrize("option", ["--algorithm", "--sampler", "--objective"])
def test_unknown_names(run: Run, tune_arguments: list[object], option: str) -> None:
    """A method, sampler or objective that does not exist is named."""
    assert "wonder" in refused(run, *tune_arguments, option, "wonder").lower()


def test_budget_shorter_than_one_launch(run: Run, tune_arguments: list[object]) -> None:
    """The budget and the least time needed are named."""
    line = refused(run, *tune_arguments, "--budget", "5s")
    assert "5s" in line
    assert "shorter than one launch" in line


@pytest.mark.parametrize("budget", ["soon", "0", "-5m"])
def test_malformed_budget(run: Run, tune_arguments: list[object], budget: str) -> None:
    """The text is named with examples of what would be right."""
    assert budget in refused(run, *tune_arguments, f"--budget={budget}")


@pytest.mark.parametrize(
    "arguments",
    [("--repeats", 2), ("--concurrency", "0"), ("--draft", "STANDALONE"), ("--temperature", 9)],
)
def test_values_out_of_range(
    run: Run, tune_arguments: list[object], arguments: tuple[object, ...]
) -> None:
    """Numbers and forms are checked at once."""
    assert str(arguments[1]) in refused(run, *tune_arguments, *arguments)


def test_no_model(run: Run) -> None:
    """Without a model the three ways to give one are shown."""
    assert "--demo" in refused(run, "tune")


def test_flags_that_autospec_sets_itself(run: Run, tune_arguments: list[object]) -> None:
    """A pass-through flag that would make the arms differ is refused by name."""
    line = refused(run, *tune_arguments, "--", "--speculative-num-steps", "3")
    assert "--speculative-num-steps" in line


def test_sglang_not_installed(
    run: Run, tune_arguments: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what to install."""

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(prepare, "require_sglang", capabilities.require_sglang)
    monkeypatch.setattr(metadata, "version", missing)
    line = refused(run, *tune_arguments, code=1)
    assert "pip install 'sglang-autospec[sglang]'" in line


def test_output_that_cannot_be_written(run: Run, tune_arguments: list[object]) -> None:
    """It is found before hours of measuring, not after."""
    Path("out.yaml").mkdir()
    assert "out.yaml" in refused(run, *tune_arguments, code=1)


def test_study_folder_with_foreign_files(run: Run, tune_arguments: list[object]) -> None:
    """Nothing of the user's is overwritten."""
    Path("study").mkdir()
    Path("study", "notes.txt").write_text("mine")
    result = run(*tune_arguments)
    assert result.exit_code == 1
    assert "notes.txt" in result.stderr
    assert [path.name for path in Path("study").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("command", [("show",), ("tune", "--resume")])
def test_folder_that_is_no_study(run: Run, command: tuple[str, ...]) -> None:
    """A folder of another command is refused by name."""
    Path("other").mkdir()
    result = run(*command, "other")
    assert result.exit_code == 1
    assert "other: not a study folder" in result.stderr


def test_study_of_another_command_is_not_resumed(run: Run) -> None:
    """A study that asks for something else is refused by the first key that is foreign."""
    Study.create(Path("other"), {"policy": "throughput"}).close()
    result = run("tune", "--resume", "other")
    assert result.exit_code == 1
    assert "not a study of autospec tune" in result.stderr
    assert "'policy'" in result.stderr


@pytest.mark.parametrize("command", ["show", "args", "serve"])
@pytest.mark.parametrize(
    ("content", "named"),
    [("a: [1", "not YAML"), ("schema: 99", "newer"), ("schema: 1\nspeed: 3", "'speed'")],
)
def test_unusable_profiles(run: Run, command: str, content: str, named: str) -> None:
    """Each command says the same about the same file."""
    Path("bad.yaml").write_text(content)
    assert named in refused(run, command, "bad.yaml")


def test_prompts_never_appear_in_errors(
    run: Run, tune_arguments: list[object], prompts: Path
) -> None:
    """Traffic may be private; an error names its place only."""
    private = "the patient's name is"
    prompts.write_text(json.dumps({"prompt": private, "max_new_tokens": -1}))
    assert private not in refused(run, *tune_arguments)
