"""Strict documents: whatever is not understood is refused with its place."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec import schema
from autospec.config import SpecConfig
from autospec.errors import SchemaError, StorageError
from tests.strategies import spec_configs


@dataclass(frozen=True)
class Leaf:
    """One level down."""

    kind: Literal["a", "b"]
    weight: float
    note: str | None = None


@dataclass(frozen=True)
class Tree:
    """Every kind of field."""

    config: SpecConfig
    leaves: tuple[Leaf, ...]
    pair: tuple[int, str]
    table: dict[int, float] = field(default_factory=dict)
    loose: dict[str, int | str | bool | None] = field(default_factory=dict)
    on: bool = False


leaves = st.builds(
    Leaf, st.sampled_from(["a", "b"]), st.floats(-1e9, 1e9), st.none() | st.text(max_size=5)
)
trees = st.builds(
    Tree,
    spec_configs(),
    st.lists(leaves, max_size=3).map(tuple),
    st.tuples(st.integers(), st.text(max_size=5)),
    st.dictionaries(st.integers(0, 99), st.floats(0, 1), max_size=3),
    st.dictionaries(st.text(max_size=3), st.none() | st.integers() | st.booleans(), max_size=3),
    st.booleans(),
)


@given(trees)
def test_dump_and_load_are_inverse(tree: Tree) -> None:
    """A document read back is the object that was written."""
    assert schema.load(Tree, schema.dump(tree), "doc") == tree


def good() -> dict[str, Any]:
    """A document that loads."""
    return {
        "config": "NGRAM tokens=8",
        "leaves": [{"kind": "a", "weight": 1}],
        "pair": [1, "x"],
        "table": {"8": 0.5},
    }


def test_good_document_loads_with_numbers_as_declared() -> None:
    """An integer stands for a float, and a numeric key in JSON's text for a number."""
    tree = schema.load(Tree, good(), "doc")
    assert tree.leaves[0].weight == 1.0
    assert tree.table == {8: 0.5}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"leafs": []}, "doc: unknown key 'leafs'"),
        ({"config": "NGRAM tokens=x"}, "doc: config: "),
        ({"config": 3}, "doc: config: must be text, is int 3"),
        ({"leaves": [{"kind": "c", "weight": 1}]}, "doc: leaves[0]: kind: must be one of a, b"),
        ({"leaves": [{"kind": "a"}]}, "doc: leaves[0]: key 'weight' is missing"),
        ({"leaves": [{"kind": "a", "weight": float("nan")}]}, "must be a finite number"),
        ({"leaves": [{"kind": "a", "weight": True}]}, "must be float, is bool True"),
        ({"leaves": {}}, "doc: leaves: must be a list"),
        ({"leaves": [7]}, "doc: leaves[0]: must be a mapping, is int 7"),
        ({"pair": [1]}, "doc: pair: must have 2 items, has 1"),
        ({"pair": [True, "x"]}, "doc: pair[0]: must be int, is bool True"),
        ({"table": {"x": 1}}, "doc: table: must be int"),
        ({"table": []}, "doc: table: must be a mapping"),
        ({"on": None}, "doc: on: must be bool, is empty"),
    ],
)
def test_bad_documents_name_the_field(change: dict[str, Any], message: str) -> None:
    """The path of the field, what stood there and what belongs there."""
    with pytest.raises(SchemaError) as caught:
        schema.load(Tree, {**good(), **change}, "doc")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b"a: [1", "not YAML"),
        (b"- 1\n", "must be a mapping, is list"),
        (b"a: 1\n", "schema is None"),
        (b"schema: 2\n", "schema 2 is newer than 1"),
        (b"schema: true\n", "schema is True"),
        (b"schema: 1\na: !!python/object:os.system {}\n", "not YAML"),
    ],
)
def test_unreadable_files_are_refused_by_path(tmp_path: Path, content: bytes, message: str) -> None:
    """One line that begins with the file's path; no object is ever built from a tag."""
    path = tmp_path / "doc.yaml"
    path.write_bytes(content)
    with pytest.raises(SchemaError) as caught:
        schema.read_yaml(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    """A path that does not exist is an error of the document, not a traceback."""
    with pytest.raises(SchemaError, match="No such file"):
        schema.read_yaml(tmp_path / "no.yaml")


def test_others_may_read_what_the_user_lets_them(tmp_path: Path) -> None:
    """A written file has the mode of any other file of this user."""
    (tmp_path / "other").write_text("")
    schema.write_text(tmp_path / "doc.yaml", "new")
    assert (tmp_path / "doc.yaml").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_full_disk_leaves_the_old_file_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails half-way changes nothing."""
    path = tmp_path / "doc.yaml"
    schema.write_text(path, "old")

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        schema.write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
