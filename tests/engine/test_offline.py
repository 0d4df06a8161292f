"""SGLang's own check of its arguments, in a process of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from autospec.argv import to_argv
from autospec.config import PLAIN, SpecConfig
from autospec.engine.args import Deployment, server_args
from autospec.engine.constraints import violations
from autospec.engine.offline import main, validate
from autospec.errors import EngineError, EngineMissingError

FAKE_SERVER_ARGS = """
import argparse, time
print("noise on standard output")
class Args:
    def __init__(self, word): self.word = word
    def resolve_once(self):
        if self.word == "assert": assert self.word is None
        if self.word == "lines": raise ValueError("first\\n  second")
        if self.word == "kernel": raise ImportError("no kernels\\nhere")
        if self.word == "die": import os; os._exit(7)
        if self.word == "hang": time.sleep(60)
    def check_server_args(self):
        if self.word == "check": raise AssertionError("wrong pair")
def prepare_server_args(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--word")
    return Args(parser.parse_args(argv).word)
"""


@pytest.fixture
def fake(tmp_path: Path) -> dict[str, str]:
    """The environment in which a stand-in for SGLang's arguments is imported."""
    package = tmp_path / "lib" / "sglang" / "srt"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "server_args.py").write_text(FAKE_SERVER_ARGS, encoding="utf-8")
    return {"PYTHONPATH": str(tmp_path / "lib")}


def test_each_command_line_gets_its_own_verdict(fake: dict[str, str]) -> None:
    """None for what is accepted, one line for each way of refusing, in the order asked."""
    words = ["good", "assert", "lines", "check"]

    verdicts = validate([*(["--word", word] for word in words), ["--wrod"]], fake, 60)

    assert verdicts == [
        None,
        'AssertionError in server_args.py:7: if self.word == "assert": assert self.word is None',
        "first second",
        "wrong pair",
        "unrecognized arguments: --wrod",
    ]


def test_nothing_to_check_starts_nothing(fake: dict[str, str]) -> None:
    """No command lines, no verdicts, and no process that could fail."""
    assert validate([], {"PYTHONPATH": "/nowhere"}, 0.001) == []


def test_an_import_that_fails_is_a_missing_engine(fake: dict[str, str]) -> None:
    """Kernels that cannot be loaded are not the arguments' fault."""
    with pytest.raises(EngineMissingError, match="cannot be imported: no kernels here"):
        validate([["--word", "kernel"]], fake, 60)


def test_no_sglang_is_a_missing_engine(tmp_path: Path) -> None:
    """Without an importable SGLang the check says so instead of refusing the arguments."""
    (tmp_path / "sglang.py").touch()

    with pytest.raises(EngineMissingError, match=r"sglang\.srt"):
        validate([["--word", "good"]], {"PYTHONPATH": str(tmp_path)}, 60)


def test_a_check_that_dies_is_an_engine_error(fake: dict[str, str]) -> None:
    """The exit code and the last line of output are told."""
    with pytest.raises(EngineError, match="exit code 7: noise on standard output"):
        validate([["--word", "die"]], {**fake, "PYTHONUNBUFFERED": "1"}, 60)


def test_a_check_that_hangs_is_ended(fake: dict[str, str]) -> None:
    """The time allowed is kept, and named."""
    with pytest.raises(EngineError, match="took more than 2 s"):
        validate([["--word", "hang"]], fake, 2)


def test_this_process_imports_no_sglang(fake: dict[str, str]) -> None:
    """The check leaves the caller's modules as they were."""
    before = {name for name in sys.modules if name.startswith("sglang")}

    validate([["--word", "good"]], fake, 60)

    assert {name for name in sys.modules if name.startswith("sglang")} == before


def test_the_answer_appears_whole(
    fake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process's body reads standard input and leaves one finished JSON file."""
    out, questions = tmp_path / "out.json", tmp_path / "in.json"
    questions.write_text("[]", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["offline", str(out)])
    with questions.open(encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        main()

    assert json.loads(out.read_text(encoding="utf-8")) == {"verdicts": []}
    assert not out.with_suffix(".part").exists()


@pytest.mark.engine
def test_sglang_agrees_with_the_table(tmp_path: Path) -> None:
    """The real SGLang accepts what the rules accept on a CPU, and refuses what it can notice."""
    cpu = pytest.importorskip("autospec.engine.cpu")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 128,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 256,
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    draft = f"draft={tmp_path}"
    deployment = Deployment(model=str(tmp_path), device="cpu", max_running_requests=4)
    valid = [
        "NGRAM tokens=2 breadth=1",
        "NGRAM tokens=12 breadth=8 match=PROB",
        "NGRAM tokens=8 min_breadth=2 trie_depth=2",
        f"STANDALONE steps=1 topk=1 tokens=2 {draft}",
        f"STANDALONE steps=3 topk=4 tokens=37 {draft}",
        f"EAGLE steps=5 topk=1 tokens=6 {draft}",
        f"EAGLE3 steps=3 topk=4 tokens=4 {draft}",
        f"NEXTN steps=3 topk=2 tokens=11 {draft}",
        f"EAGLE {draft}",
    ]
    noticed = [
        f"DFLASH block=8 {draft}",
        f"DSPARK block=8 {draft}",
        f"UNO tokens=8 {draft}",
        "NGRAM tokens=4 corpus=/c sam_budget=4",
        f"EAGLE topk=2 tokens=4 {draft}",
        "FOO",
    ]
    configs = [PLAIN, *(SpecConfig.parse(text) for text in [*valid, *noticed])]

    verdicts = validate(
        [to_argv(server_args(deployment, config)) for config in configs], cpu.environment(), 300
    )

    ours = [bool(violations(config, deployment)) for config in configs]
    assert [verdict is not None for verdict in verdicts] == ours, verdicts
    assert ours == [False] * (1 + len(valid)) + [True] * len(noticed)
