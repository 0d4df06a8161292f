"""Where the files lie that autospec ships: decision rules and measured profiles."""

from __future__ import annotations

from pathlib import Path

from autospec.errors import SchemaError

__all__ = ["policy_names", "policy_path", "profile_names", "profile_path"]

_PACKAGE = Path(__file__).parent
#: In an installed package, and in a checkout.
_PLACES = (_PACKAGE / "_shipped", _PACKAGE.parent)


def _folder(name: str) -> Path:
    return next((place / name for place in _PLACES if (place / name).is_dir()), _PLACES[0] / name)


def profile_names() -> tuple[str, ...]:
    """The shipped profiles; a policy beside one is no profile."""
    paths = _folder("profiles").glob("*.yaml")
    return tuple(sorted(path.stem for path in paths if path.suffixes[-2:] != [".policy", ".yaml"]))


def profile_path(name: str) -> Path | None:
    """The file of a shipped profile; None where there is none of this name."""
    return _folder("profiles") / f"{name}.yaml" if name in profile_names() else None


def policy_names() -> tuple[str, ...]:
    """The shipped policies."""
    return tuple(sorted(path.stem for path in _folder("policies").glob("*.yaml")))


def policy_path(name: str) -> Path:
    """The file of a shipped policy.

    Raises:
        SchemaError: there is none of this name.
    """
    names = policy_names()
    if name not in names:
        raise SchemaError(
            f"policy {name!r} is none of {', '.join(names)}, nor a path to a .yaml file, "
            "nor module:Class"
        )
    return _folder("policies") / f"{name}.yaml"
