"""Orders to a tuning server: private, whole, and within what was announced."""

from __future__ import annotations

from pathlib import Path

import pytest

from autospec.control.orders import Order, read_order, write_order
from autospec.errors import ConfigError, SchemaError, StorageError


def test_order_is_read_as_it_was_given_and_is_nobody_elses(tmp_path: Path) -> None:
    """A later order replaces the one before; the file stays mode 0600 and alone."""
    path = tmp_path / "orders.json"
    write_order(path, Order("a-1", 3, (1, 3)))
    write_order(path, Order("a-2", 1, (1, 3)))
    assert read_order(path) == Order("a-2", 1, (1, 3))
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_order_that_others_could_give_is_refused(tmp_path: Path) -> None:
    """A file that the group may read is not the tuner's."""
    path = tmp_path / "orders.json"
    write_order(path, Order("a-1", 3, (1, 3)))
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="mode 0600"):
        read_order(path)


@pytest.mark.parametrize(("depth", "depths"), [(2, (1, 3)), (0, (0, 3)), (1, ())])
def test_order_stays_within_the_depths_announced(depth: int, depths: tuple[int, ...]) -> None:
    """Plain decoding is none of them."""
    with pytest.raises(ConfigError, match="must be one of"):
        Order("a-1", depth, depths)


def test_missing_or_broken_orders_are_an_error(tmp_path: Path) -> None:
    """So is a folder that cannot be written."""
    with pytest.raises(SchemaError, match="cannot be read"):
        read_order(tmp_path / "none.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(SchemaError, match="not JSON"):
        read_order(tmp_path / "broken.json")
    with pytest.raises(StorageError, match="cannot be written"):
        write_order(tmp_path / "broken.json" / "orders.json", Order("a-1", 1, (1,)))
