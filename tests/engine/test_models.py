"""What is read from a model's files, and which drafts fit which targets."""

from __future__ import annotations

import json
import os
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autospec.engine.models import ModelInfo, check_draft, count_tokens, read_model
from autospec.errors import ModelError

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "max_position_embeddings": 2048,
}
INFO = ModelInfo(
    name="target",
    path=None,
    architecture="LlamaForCausalLM",
    vocab_size=100,
    context_length=2048,
    hidden_size=64,
    digest="0",
)


def _model(folder: Path, config: object = CONFIG, weights: bytes = b"w" * 300_000) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def _tokenizer(folder: Path, vocab: object, added: object = ()) -> Path:
    file = folder / "tokenizer.json"
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": "?"}
    document = {"version": "1.0", "added_tokens": added, "model": model}
    document |= {"pre_tokenizer": {"type": "Whitespace"}}
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def test_a_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes come from config.json, and the name is absolute whatever was typed."""
    _model(tmp_path / "m")
    monkeypatch.chdir(tmp_path)

    info = read_model("m")

    assert (info.name, info.path) == (str(tmp_path / "m"), tmp_path / "m")
    assert info.architecture == "LlamaForCausalLM"
    assert (info.vocab_size, info.context_length, info.hidden_size) == (100, 2048, 64)
    assert info.tokenizer is None
    assert len(info.digest) == 64


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, 2048),
        ({"max_position_embeddings": None}, 2048),
        ({"max_position_embeddings": None, "n_positions": 1024}, 1024),
        ({"model_max_length": 512}, 512),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 8192),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 2048),
        ({"rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 512}}, 2048),
        ({"text_config": {"max_position_embeddings": 99}}, 99),
    ],
)
def test_the_context_is_derived_as_sglang_does(
    tmp_path: Path, change: dict[str, Any], expected: int
) -> None:
    """The first known key counts, stretched by rope scaling unless it is stretched already."""
    assert read_model(str(_model(tmp_path / "m", CONFIG | change))).context_length == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (CONFIG | {"architectures": []}, "config.json names no architectures"),
        ([], "must hold an object, got list"),
        (CONFIG | {"vocab_size": None}, "config.json has no vocab_size"),
        (CONFIG | {"hidden_size": "64"}, "hidden_size is '64', must be a positive number"),
        (CONFIG | {"max_position_embeddings": 0}, "max_position_embeddings is 0"),
    ],
)
def test_a_config_without_what_is_needed_is_refused(
    tmp_path: Path, config: object, message: str
) -> None:
    """The error names the model's role, its place and the value."""
    with pytest.raises(ModelError, match=message) as caught:
        read_model(str(_model(tmp_path / "m", config)), role="draft model")

    assert str(caught.value).startswith(f"draft model {tmp_path / 'm'}: ")


def test_broken_files_are_refused(tmp_path: Path) -> None:
    """A folder without config.json, JSON that is none, and a file in a folder's place."""
    folder = _model(tmp_path / "m")
    (folder / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match=r"config\.json is not JSON"):
        read_model(str(folder))

    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match="No such file"):
        read_model(str(folder))
    with pytest.raises(ModelError, match="must be a folder"):
        read_model(str(folder / "model.safetensors"))


@pytest.mark.parametrize("name", ["/no/such/folder", "./none", "~/none-such", "a/b/c", ""])
def test_a_missing_folder_is_not_looked_for_on_the_hub(name: str) -> None:
    """What looks like a path is refused at once, in the words the user knows it by."""
    with pytest.raises(ModelError) as caught:
        read_model(name, role="draft model")

    assert str(caught.value) == (
        f"draft model {name}: neither a folder here nor a repository that could be fetched"
    )


def test_the_digest_follows_content_only(tmp_path: Path) -> None:
    """Times and the folder's name do not matter; any change of weights or config does."""
    weights = bytes(range(256)) * 8192
    first = read_model(str(_model(tmp_path / "a", weights=weights)))
    same = _model(tmp_path / "b", weights=weights)
    os.utime(same / "model.safetensors", (1, 1))
    (same / "README.md").write_text("not weights", encoding="utf-8")
    # Training changes all of the weights, so that any block shows it.
    tuned = _model(tmp_path / "c", weights=bytes(byte ^ 1 for byte in weights))
    longer = _model(tmp_path / "d", weights=weights + b"\0")
    other = _model(tmp_path / "e", CONFIG | {"rope_theta": 1}, weights=weights)

    digests = [read_model(str(folder)).digest for folder in (tuned, longer, other)]

    assert read_model(str(same)).digest == first.digest
    assert len({first.digest, *digests}) == 4


class _Hub(types.ModuleType):
    """A stand-in for huggingface_hub with one repository."""

    def __init__(self, root: Path, error: type[Exception] | None = None) -> None:
        super().__init__("huggingface_hub")
        self.root, self.error = root, error
        self.errors = types.ModuleType("huggingface_hub.errors")
        for name, base in [
            ("HfHubHTTPError", OSError),
            ("EntryNotFoundError", Exception),
            ("LocalEntryNotFoundError", FileNotFoundError),
        ]:
            setattr(self.errors, name, type(name, (base,), {}))

    def hf_hub_download(self, repository: str, file: str) -> str:
        if self.error is not None:
            raise self.error(f"no\nway to {repository}")
        if not (self.root / file).exists():
            raise self.errors.EntryNotFoundError(file)
        return str(self.root / file)


def _install(monkeypatch: pytest.MonkeyPatch, hub: _Hub) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", hub.errors)


def test_a_repository_is_known_by_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only small files are fetched; another commit is another digest, weights at hand or not."""
    _install(monkeypatch, _Hub(_model(tmp_path / "c0ffee")))
    first = read_model("org/model")
    (tmp_path / "c0ffee" / "model.safetensors").unlink()
    _tokenizer(tmp_path / "c0ffee", {"a": 0})
    again = read_model("org/model")
    _install(monkeypatch, _Hub(_model(tmp_path / "beef")))
    later = read_model("org/model")

    assert (first.name, first.path, first.tokenizer) == ("org/model", None, None)
    assert again.tokenizer == tmp_path / "c0ffee" / "tokenizer.json"
    assert first.digest == again.digest != later.digest


@pytest.mark.parametrize("name", ["HfHubHTTPError", "LocalEntryNotFoundError"])
def test_a_repository_that_cannot_be_fetched_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """No network, no such repository or offline with an empty cache: one line with the reason."""
    hub = _Hub(tmp_path)
    hub.error = getattr(hub.errors, name)
    _install(monkeypatch, hub)

    with pytest.raises(ModelError) as caught:
        read_model("org/model", role="draft model")

    assert str(caught.value) == (
        "draft model org/model: neither a folder here nor a repository that could be fetched: "
        "no way to org/model"
    )


def test_a_repository_without_config_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository that is there but holds no model says so."""
    _install(monkeypatch, _Hub(tmp_path))

    with pytest.raises(ModelError, match=r"the repository has no config\.json"):
        read_model("org/dataset")


def test_without_the_hub_library_a_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library comes with SGLang; its absence is named."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)

    with pytest.raises(ModelError, match="huggingface_hub is not installed"):
        read_model("org/model")


def test_standalone_needs_the_same_vocabulary_size() -> None:
    """Both sizes are named; other methods may differ."""
    draft = replace(INFO, name="draft", vocab_size=99)

    with pytest.raises(ModelError, match="has 99 tokens, must have the 100 of the target target"):
        check_draft(INFO, draft, "STANDALONE")
    check_draft(INFO, draft, "EAGLE3")
    check_draft(INFO, replace(draft, vocab_size=100), "STANDALONE")


def test_standalone_needs_the_same_tokens(tmp_path: Path) -> None:
    """Equal sizes are not enough where both tokenizers are known."""
    for name, added in [("a", {"content": "<s>", "id": 2}), ("b", {"content": "<s>", "id": 3})]:
        (tmp_path / name).mkdir()
        _tokenizer(tmp_path / name, {"x": 0, "?": 1}, [added])
    target = replace(INFO, tokenizer=tmp_path / "a" / "tokenizer.json")
    draft = replace(INFO, tokenizer=tmp_path / "b" / "tokenizer.json")

    with pytest.raises(ModelError, match="'<s>' is token 3, must be 2"):
        check_draft(target, draft, "STANDALONE")
    check_draft(target, target, "STANDALONE")
    check_draft(target, replace(draft, tokenizer=None), "STANDALONE")
    check_draft(target, draft, "EAGLE")


def test_a_vocabulary_kept_as_a_list_is_compared_too(tmp_path: Path) -> None:
    """Unigram tokenizers list their tokens with scores; the place is the number."""
    files = []
    for name, vocab in [("a", [["x", 0.0], ["y", -1.0]]), ("b", [["y", 0.0], ["x", -1.0]])]:
        (tmp_path / name).mkdir()
        files.append(_tokenizer(tmp_path / name, vocab))

    with pytest.raises(ModelError, match="'x' is token 1, must be 0"):
        check_draft(
            replace(INFO, tokenizer=files[0]), replace(INFO, tokenizer=files[1]), "STANDALONE"
        )


def test_a_tokenizer_in_an_unknown_form_is_an_error_or_passed_over(tmp_path: Path) -> None:
    """A vocabulary that is not there compares with nothing; a broken one is named."""
    known, absent = tmp_path / "known", tmp_path / "absent"
    known.mkdir()
    absent.mkdir()
    target = replace(INFO, tokenizer=_tokenizer(known, {"x": 0}))
    draft = replace(INFO, tokenizer=_tokenizer(absent, None))
    check_draft(target, draft, "STANDALONE")

    _tokenizer(absent, {"x": 0}, [{"id": 1}])
    with pytest.raises(ModelError, match="lists its tokens in no known way"):
        check_draft(target, draft, "STANDALONE")


@pytest.mark.parametrize("algorithm", ["EAGLE", "EAGLE3", "NEXTN"])
def test_a_head_reads_the_targets_hidden_states(algorithm: str) -> None:
    """Its width, or the target width that it names, must be the target's."""
    head = replace(INFO, name="head", hidden_size=32)

    with pytest.raises(ModelError, match="width 32, but the target target has width 64"):
        check_draft(INFO, head, algorithm)
    check_draft(INFO, replace(head, target_hidden_size=64), algorithm)
    check_draft(INFO, replace(head, hidden_size=64), algorithm)
    check_draft(INFO, head, "STANDALONE")


def test_tokens_are_counted_where_a_tokenizer_is_at_hand(tmp_path: Path) -> None:
    """One count a text, or None when there is nothing to count with."""
    pytest.importorskip("tokenizers")
    info = replace(INFO, tokenizer=_tokenizer(tmp_path, {"a": 0, "b": 1, "?": 2}))

    assert count_tokens(info, ["a b a", "", "zzz"]) == [3, 0, 1]
    assert count_tokens(info, []) == []
    assert count_tokens(INFO, ["a"]) is None


def test_counting_without_the_library_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library comes with SGLang; without it nothing is counted."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)

    assert count_tokens(replace(INFO, tokenizer=_tokenizer(tmp_path, {"a": 0})), ["a"]) is None


def test_a_tokenizer_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """A truncated tokenizer.json is named."""
    pytest.importorskip("tokenizers")
    file = tmp_path / "tokenizer.json"
    file.write_text("{", encoding="utf-8")

    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read"):
        count_tokens(replace(INFO, tokenizer=file), ["a"])


def test_a_bundled_draft_is_noticed(tmp_path: Path) -> None:
    """DSPARK drafts come as keys of config.json or in a folder of their own."""
    plain, keys, folder = (
        _model(tmp_path / "a"),
        _model(tmp_path / "b", CONFIG | {"dspark_block_size": 4}),
        _model(tmp_path / "c"),
    )
    _model(folder / "dspark")

    found = [read_model(str(place)).bundles_dspark for place in (plain, keys, folder)]

    assert found == [False, True, True]
