"""What can be known of a model before a server is started: its config.json, tokenizer and weights.

Nothing here loads a model, and nothing imports torch or transformers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autospec.errors import ModelError

__all__ = ["ModelInfo", "check_draft", "count_tokens", "read_model", "weights_gib"]

_WEIGHTS: Final = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf"})
_BLOCK_BYTES: Final = 1 << 16
_BLOCKS_PER_FILE: Final = 16
#: Names of one quantity in different model families, in the order in which they are looked for;
#: the first five of the context are those of SGLang's ``get_context_length``.
_CONTEXT_KEYS: Final = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
    "n_positions",
)
_HIDDEN_KEYS: Final = ("hidden_size", "n_embd", "d_model")
#: What SGLang assumes where a config names no context length.
_DEFAULT_CONTEXT: Final = 2048
_EAGLE_FAMILY: Final = frozenset({"EAGLE", "EAGLE3", "NEXTN"})


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model as its files describe it.

    Attributes:
        name: what a server is given: an absolute folder, or the repository.
        path: the folder, or None for a repository, whose files SGLang fetches itself.
        architecture: first of config.json's ``architectures``.
        vocab_size: rows of the embedding, which may be more than the tokenizer has tokens.
        context_length: longest prompt and answer in tokens, as SGLang derives it.
        hidden_size: width of the hidden states.
        digest: SHA-256, hexadecimal, over config.json and what identifies the weights: for a
            folder each weight file's name, size and 16 blocks of 64 KiB spread over it (training
            changes every block, and reading all of a large model takes minutes); for a repository
            its commit.
        tokenizer: the tokenizer.json at hand, or None.
        target_hidden_size: width of the target that a draft head was trained on, if it says so.
        bundles_dspark: whether a DSPARK draft comes with the model.
    """

    name: str
    path: Path | None
    architecture: str
    vocab_size: int
    context_length: int
    hidden_size: int
    digest: str
    tokenizer: Path | None = None
    target_hidden_size: int | None = None
    bundles_dspark: bool = False


def read_model(path_or_repo: str, *, role: str = "model") -> ModelInfo:
    """Read what a model's files say, fetching only small ones where it is a repository.

    Args:
        path_or_repo: a folder, or the name of a repository of the Hugging Face hub; the hub's
            offline variables are honoured.
        role: what error messages call it, for example ``draft model``.

    Raises:
        ModelError: neither a folder nor a repository that could be fetched, or a config.json that
            is missing, unreadable or lacks a value.
    """
    folder = Path(path_or_repo).expanduser()
    if path_or_repo and folder.is_dir():
        folder = folder.resolve()
        where = f"{role} {folder}"
        config, raw = _read_config(folder / "config.json", where)
        tokenizer = folder / "tokenizer.json"
        return _info(
            config,
            where,
            name=str(folder),
            path=folder,
            digest=_digest(raw, _weight_blocks(folder, where)),
            tokenizer=tokenizer if tokenizer.is_file() else None,
            bundles_dspark=(folder / "dspark" / "config.json").is_file(),
        )
    if path_or_repo and folder.exists():
        raise ModelError(f"{role} {path_or_repo}: must be a folder with a config.json, not a file")
    where = f"{role} {path_or_repo}"
    missing = f"{where}: neither a folder here nor a repository that could be fetched"
    if path_or_repo.startswith(("/", ".", "~")) or path_or_repo.count("/") > 1 or not path_or_repo:
        raise ModelError(missing)
    file = _fetch(path_or_repo, "config.json", missing)
    if file is None:
        raise ModelError(f"{where}: the repository has no config.json")
    config, raw = _read_config(file, where)
    # The hub's cache keeps each commit in a folder of its name.
    digest = _digest(raw, [file.parent.name.encode()])
    tokenizer_file = _fetch(path_or_repo, "tokenizer.json", missing)
    return _info(
        config, where, name=path_or_repo, path=None, digest=digest, tokenizer=tokenizer_file
    )


def check_draft(target: ModelInfo, draft: ModelInfo, algorithm: str) -> None:
    """Refuse a draft model that SGLang would refuse, or crash on, after loading both models.

    STANDALONE needs the target's vocabulary, in size and in each token's number
    (``srt/speculative/standalone_worker_v2.py``); an EAGLE head reads the target's hidden states
    (``srt/models/llama_eagle.py``, ``llama_eagle3.py``). Other methods are not checked.

    Raises:
        ModelError: with both models' numbers.
    """
    where = f"{algorithm} draft model {draft.name}"
    if algorithm == "STANDALONE":
        if draft.vocab_size != target.vocab_size:
            raise ModelError(
                f"{where}: its vocabulary has {draft.vocab_size} tokens, must have the "
                f"{target.vocab_size} of the target {target.name}"
            )
        _check_vocabularies(target, draft, where)
    if algorithm in _EAGLE_FAMILY:
        expected = draft.target_hidden_size or draft.hidden_size
        if expected != target.hidden_size:
            raise ModelError(
                f"{where}: it was made for hidden states of width {expected}, but the target "
                f"{target.name} has width {target.hidden_size}"
            )


def count_tokens(model: ModelInfo, texts: Sequence[str]) -> list[int] | None:
    """Count each text's tokens, special tokens included; None without a tokenizer.json at hand.

    Raises:
        ModelError: the tokenizer.json cannot be read.
    """
    if model.tokenizer is None:
        return None
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - comes with SGLang, not with autospec
    except ImportError:
        return None
    try:
        tokenizer = Tokenizer.from_file(str(model.tokenizer))
    except Exception as error:  # the library raises bare Exception for every fault of the file
        raise ModelError(f"{model.tokenizer} cannot be read: {_line(error)}") from error
    return [len(encoding.ids) for encoding in tokenizer.encode_batch(list(texts))]


def weights_gib(model: ModelInfo) -> float:
    """Size of a model's weight files, in GiB; 0 for a repository, whose files SGLang fetches."""
    files = model.path.iterdir() if model.path is not None else ()
    sizes = [file.stat().st_size for file in files if file.suffix in _WEIGHTS and file.is_file()]
    return sum(sizes) / 2**30


def _read_config(file: Path, where: str) -> tuple[dict[str, Any], bytes]:
    try:
        raw = file.read_bytes()
        config = json.loads(raw)
    except OSError as error:
        raise ModelError(f"{where}: {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ModelError(f"{where}: {file} is not JSON: {_line(error)}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{where}: {file} must hold an object, got {type(config).__name__}")
    return config, raw


def _info(config: dict[str, Any], where: str, **known: Any) -> ModelInfo:
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not architectures:
        raise ModelError(f"{where}: config.json names no architectures")
    nested = config.get("text_config")
    # A multimodal model keeps its language model's sizes one level down.
    text = config | nested if isinstance(nested, dict) else config
    bundled = any(text.get(key) is not None for key in ("dspark_block_size", "dspark_markov_rank"))
    known["bundles_dspark"] = known.get("bundles_dspark", False) or bundled
    return ModelInfo(
        architecture=str(architectures[0]),
        vocab_size=_number(text, ("vocab_size",), where),
        context_length=_context_length(text, where),
        hidden_size=_number(text, _HIDDEN_KEYS, where),
        target_hidden_size=(
            _number(text, ("target_hidden_size",), where) if "target_hidden_size" in text else None
        ),
        **known,
    )


def _number(config: dict[str, Any], keys: Sequence[str], where: str) -> int:
    key = next((key for key in keys if config.get(key) is not None), None)
    if key is None:
        raise ModelError(f"{where}: config.json has no {keys[0]}")
    value = config[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelError(f"{where}: config.json: {key} is {value!r}, must be a positive number")
    return value


def _context_length(config: dict[str, Any], where: str) -> int:
    if all(config.get(key) is None for key in _CONTEXT_KEYS):
        return _DEFAULT_CONTEXT
    length = _number(config, _CONTEXT_KEYS, where)
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(scaling, dict) or scaling.get("rope_type") == "llama3":
        return length
    factor = scaling.get("factor", 1)
    # With the original length given, the length itself is the stretched one.
    if "original_max_position_embeddings" in scaling or not isinstance(factor, int | float):
        return length
    return int(factor * length)


def _weight_blocks(folder: Path, where: str) -> Iterator[bytes]:
    try:
        for file in sorted(file for file in folder.iterdir() if file.suffix in _WEIGHTS):
            size = file.stat().st_size
            yield f"{file.name} {size}".encode()
            with file.open("rb") as stream:
                last = max(0, size - _BLOCK_BYTES)
                for block in range(_BLOCKS_PER_FILE):
                    stream.seek(last * block // (_BLOCKS_PER_FILE - 1))
                    yield stream.read(_BLOCK_BYTES)
    except OSError as error:
        raise ModelError(f"{where}: {error.filename} cannot be read: {error.strerror}") from error


def _digest(config: bytes, parts: Iterator[bytes] | list[bytes]) -> str:
    digest = hashlib.sha256(config)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _fetch(repository: str, file: str, missing: str) -> Path | None:
    """Return the hub's copy of a file, or None where the repository has no such file."""
    try:
        import huggingface_hub  # noqa: PLC0415 - comes with SGLang, not with autospec
        from huggingface_hub import errors  # noqa: PLC0415 - the same
    except ImportError as error:
        raise ModelError(f"{missing} (huggingface_hub is not installed)") from error
    try:
        return Path(huggingface_hub.hf_hub_download(repository, file))
    except errors.LocalEntryNotFoundError as error:
        # Offline with a cached repository, a file that is not in it is most likely in none.
        if file != "config.json":
            return None
        raise ModelError(f"{missing}: {_line(error)}") from error
    except errors.EntryNotFoundError:
        return None
    except (errors.HfHubHTTPError, OSError, ValueError) as error:
        raise ModelError(f"{missing}: {_line(error)}") from error


def _check_vocabularies(target: ModelInfo, draft: ModelInfo, where: str) -> None:
    if target.tokenizer is None or draft.tokenizer is None:
        return
    ours, theirs = _vocabulary(target.tokenizer), _vocabulary(draft.tokenizer)
    if ours is None or theirs is None or ours == theirs:
        return
    token = min(
        token for token in ours.keys() | theirs.keys() if ours.get(token) != theirs.get(token)
    )
    raise ModelError(
        f"{where}: its tokenizer differs from the target's: {token!r} is token "
        f"{theirs.get(token, 'none')}, must be {ours.get(token, 'none')}"
    )


def _vocabulary(file: Path) -> dict[str, int] | None:
    """Each token's number as tokenizer.json has it; None where it is not kept that way."""
    document, _ = _read_config(file, "tokenizer")
    model = document.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    try:
        if isinstance(vocabulary, list):
            vocabulary = {entry[0]: number for number, entry in enumerate(vocabulary)}
        if not isinstance(vocabulary, dict):
            return None
        added = document.get("added_tokens") or []
        return vocabulary | {token["content"]: token["id"] for token in added}
    except (IndexError, KeyError, TypeError) as error:
        raise ModelError(f"{file} lists its tokens in no known way: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
