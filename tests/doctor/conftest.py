"""What the doctor's tests share with those of the command line."""

from __future__ import annotations

from tests.cli.conftest import model, profile

__all__ = ["model", "profile"]
