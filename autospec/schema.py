"""Frozen dataclasses <-> plain mappings <-> YAML, strictly.

An unknown key, a missing key, a wrong type or a newer schema is an error that names the path of
the field. Types understood: ``int``, ``float``, ``str``, ``bool``, ``None``, unions, literals,
``tuple[T, ...]``, ``dict[K, V]``, dataclasses, and classes written as one text, which have a
``parse`` class method (``SpecConfig``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import time
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

import yaml

from autospec.errors import AutospecError, SchemaError, StorageError

__all__ = [
    "SCHEMA",
    "check_version",
    "dump",
    "load",
    "read_yaml",
    "write_text",
    "write_yaml",
    "yaml_text",
]

#: The version that every stored document carries under the key ``schema``.
SCHEMA = 1

T = TypeVar("T")


class _RowDumper(yaml.SafeDumper):
    """Writes each mapping in a list as one row, ``{config: PLAIN, concurrency: 1}``."""

    def represent_sequence(
        self, tag: str, sequence: Any, flow_style: bool | None = None
    ) -> yaml.SequenceNode:
        node = super().represent_sequence(tag, sequence, flow_style)
        for item in node.value:
            if isinstance(item, yaml.MappingNode):
                _flow(item)
        return node


def _flow(node: yaml.Node) -> None:
    """Have a node and all inside it written on one line, as far as it is long."""
    if not isinstance(node, yaml.CollectionNode):
        return
    node.flow_style = True
    for item in node.value:
        for child in item if isinstance(item, tuple) else (item,):
            _flow(child)


def dump(value: Any) -> Any:
    """Turn dataclasses into plain mappings, lists and scalars; None fields are left out."""
    if hasattr(type(value), "parse"):
        return str(value)
    if dataclasses.is_dataclass(value):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {name: dump(item) for name, item in fields if item is not None}
    if isinstance(value, dict):
        return {key: dump(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [dump(item) for item in value]
    return value


def load(cls: type[T], data: Any, where: str) -> T:
    """Build ``cls`` from a plain mapping.

    Args:
        cls: the frozen dataclass to build.
        data: what YAML or JSON gave.
        where: the document's name, which begins every error message.

    Raises:
        SchemaError: with the path of the field, what stood there and what belongs there.
    """
    return typing.cast("T", _load(cls, data, where))


def read_yaml(path: Path) -> Any:
    """Read one YAML document with the safe loader.

    Raises:
        SchemaError: the file is missing, not UTF-8, not YAML, or of a newer schema.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SchemaError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise SchemaError(f"{path}: not UTF-8 at byte {error.start}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "malformed"
        raise SchemaError(f"{path}{line}: not YAML ({problem})") from error
    if not isinstance(data, dict):
        raise SchemaError(f"{path}: must be a mapping, is {_kind(data)}")
    check_version(data, str(path))
    return data


def check_version(data: dict[str, Any], where: str) -> None:
    """Refuse a document without ``schema`` or written by a newer autospec.

    Raises:
        SchemaError: naming the version found and the newest one understood.
    """
    version = data.get("schema")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise SchemaError(f"{where}: schema is {version!r}, must be {SCHEMA}")
    if version > SCHEMA:
        raise SchemaError(
            f"{where}: schema {version} is newer than {SCHEMA}, the newest this autospec reads"
        )


def write_yaml(path: Path, document: Any) -> None:
    """Write a dataclass or mapping as YAML, atomically.

    Raises:
        StorageError: nothing could be written; an older file is untouched.
    """
    write_text(path, yaml_text(document, rows=True))


def yaml_text(document: Any, *, rows: bool = False) -> str:
    """A dataclass or mapping as YAML text.

    Args:
        document: what to write; its keys keep their order.
        rows: each mapping in a list stands on one line, as far as it is long.
    """
    dumper = _RowDumper if rows else yaml.SafeDumper
    return yaml.dump(dump(document), Dumper=dumper, sort_keys=False, allow_unicode=True, width=100)


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Write a file so that readers see the old content or the new, never a part.

    Args:
        path: the file; its folder is made where it is missing.
        text: all of the content.
        private: nobody but this user may read it; otherwise the umask says who may.

    Raises:
        StorageError: nothing could be written; an older file is untouched.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not by tempfile, whose files nobody else may read: a profile is for others too.
        flags, mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666
        with os.fdopen(os.open(temporary, flags, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StorageError(f"{path}: cannot be written ({error.strerror})") from error


def _load(annotation: Any, data: Any, where: str) -> Any:
    origin = typing.get_origin(annotation)
    if annotation is Any:
        return data
    if origin in (typing.Union, types.UnionType):
        return _load_union(typing.get_args(annotation), data, where)
    if origin is typing.Literal:
        return _load_literal(typing.get_args(annotation), data, where)
    if origin is tuple:
        return _load_tuple(typing.get_args(annotation), data, where)
    if origin is dict:
        return _load_dict(typing.get_args(annotation), data, where)
    if hasattr(annotation, "parse"):
        return _load_text(annotation, data, where)
    if dataclasses.is_dataclass(annotation):
        return _load_dataclass(annotation, data, where)
    return _load_scalar(annotation, data, where)


def _load_dataclass(cls: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise SchemaError(f"{where}: must be a mapping, is {_kind(data)}")
    hints, fields = _described(cls)
    for key in data:
        if key not in fields:
            raise SchemaError(f"{where}: unknown key {key!r}, known are {', '.join(fields)}")
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in data:
            values[name] = _load(hints[name], data[name], f"{where}: {name}")
        elif type(None) in typing.get_args(hints[name]):
            values[name] = None if field.default is dataclasses.MISSING else field.default
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise SchemaError(f"{where}: key {name!r} is missing")
    return _build(cls, values, where)


@functools.cache
def _described(cls: Any) -> tuple[dict[str, Any], dict[str, dataclasses.Field[Any]]]:
    """Types and fields of a dataclass; a study holds thousands of instances of few classes."""
    return typing.get_type_hints(cls), {field.name: field for field in dataclasses.fields(cls)}


def _build(cls: Any, values: dict[str, Any], where: str) -> Any:
    try:
        return cls(**values)
    except AutospecError as error:
        raise SchemaError(f"{where}: {error}") from error


def _load_union(options: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in options:
        return None
    errors: list[SchemaError] = []
    for option in options:
        if option is type(None):
            continue
        try:
            return _load(option, data, where)
        except SchemaError as error:
            errors.append(error)
    raise errors[0]


def _load_tuple(arguments: tuple[Any, ...], data: Any, where: str) -> Any:
    if not isinstance(data, list | tuple):
        raise SchemaError(f"{where}: must be a list, is {_kind(data)}")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        arguments = (arguments[0],) * len(data)
    if len(data) != len(arguments):
        raise SchemaError(f"{where}: must have {len(arguments)} items, has {len(data)}")
    pairs = zip(arguments, data, strict=True)
    return tuple(_load(kind, item, f"{where}[{index}]") for index, (kind, item) in enumerate(pairs))


def _load_dict(arguments: tuple[Any, ...], data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise SchemaError(f"{where}: must be a mapping, is {_kind(data)}")
    key_kind, value_kind = arguments
    # JSON turns every key into text; a numeric key is read back as the number it was.
    keys = {key: int(key) if key_kind is int and str(key).isdigit() else key for key in data}
    return {
        _load(key_kind, keys[key], where): _load(value_kind, item, f"{where}.{key}")
        for key, item in data.items()
    }


def _load_text(cls: Any, data: Any, where: str) -> Any:
    if isinstance(data, cls):
        return data
    if not isinstance(data, str):
        raise SchemaError(f"{where}: must be text, is {_kind(data)}")
    try:
        return cls.parse(data)
    except AutospecError as error:
        raise SchemaError(f"{where}: {error}") from error


def _load_literal(allowed: tuple[Any, ...], data: Any, where: str) -> Any:
    if data not in allowed:
        raise SchemaError(f"{where}: must be one of {', '.join(allowed)}, is {_kind(data)}")
    return data


def _load_scalar(kind: Any, data: Any, where: str) -> Any:
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        data = float(data)
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise SchemaError(f"{where}: must be {kind.__name__}, is {_kind(data)}")
    if kind is float and not math.isfinite(data):
        raise SchemaError(f"{where}: must be a finite number, is {data}")
    return data


def _kind(data: Any) -> str:
    if data is None:
        return "empty"
    shown = repr(data)
    return f"{type(data).__name__} {shown if len(shown) <= 40 else shown[:37] + '...'}"
