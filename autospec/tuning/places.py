"""Models of the demo by name, so that a profile of it names no folder of one machine."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, cast

from autospec import demo
from autospec.config import SpecConfig
from autospec.errors import DemoError, SchemaError
from autospec.profile import Profile

__all__ = ["DEMO_DRAFT", "DEMO_TARGET", "make_portable", "put_in_place", "with_places"]

T = TypeVar("T")

#: What stands in a shipped profile where another has the folder of a model.
DEMO_TARGET: Final = f"demo:{demo.MODEL_NAME}"
DEMO_DRAFT: Final = "demo:draft"

#: A folder or file by its whole path, alone or within a text.
_ABSOLUTE: Final = re.compile(r"(?:^|[\s='\"(])([~/][\w.~-]*/[^\s'\",)]*)")


def put_in_place(profile: Profile, notify: Callable[[str], object] = lambda _line: None) -> Profile:
    """The profile with the folders of this machine where it names models of the demo.

    Args:
        profile: as loaded; one that names no model of the demo comes back as it is.
        notify: is told, one line each, what is going on while the caller waits: the first use of
            the demo's target fetches it.

    Raises:
        DemoError: the demo's target cannot be fetched, or its draft model is not at hand.
    """
    places: dict[str, str] = {}
    if profile.target.model == DEMO_TARGET:
        places[DEMO_TARGET] = str(demo.model_path(notify))
    if profile.choice.config.draft_model == DEMO_DRAFT:
        places[DEMO_DRAFT] = _draft_folder()
    return with_places(profile, places) if places else profile


def make_portable(profile: Profile, places: Mapping[str, str]) -> Profile:
    """The profile with names in place of folders of the machine it was measured on.

    Args:
        profile: as it was measured.
        places: folder to name, ``{"/home/me/model": DEMO_TARGET}``.

    Raises:
        SchemaError: a path of this machine is left, which is named.
    """
    portable = dataclasses.replace(with_places(profile, places), path=None)
    for text in _texts(portable):
        left = _ABSOLUTE.search(text)
        if left is not None:
            raise SchemaError(f"a profile for other machines holds the path {left[1]} in {text!r}")
    return portable


def with_places(value: T, places: Mapping[str, str]) -> T:
    """A copy in which every place stands for another, also inside sentences.

    Args:
        value: a dataclass, as deep as it may be; or a part of one.
        places: what stands there, to what shall.
    """
    return cast(T, _replaced(value, places))


def _draft_folder() -> str:
    folder = demo.draft_path()
    if folder is None:
        raise DemoError(
            "the profile deploys the demo's draft model, which is in examples/demo-draft of the "
            "source tree and in no installed package; start it from a clone"
        )
    return str(folder)


def _replaced(value: Any, places: Mapping[str, str]) -> Any:
    if isinstance(value, SpecConfig):
        draft = value.draft_model
        return dataclasses.replace(value, draft_model=places.get(draft, draft) if draft else None)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value))
        return dataclasses.replace(
            value, **{name: _replaced(getattr(value, name), places) for name in names}
        )
    if isinstance(value, tuple):
        return tuple(_replaced(item, places) for item in value)
    if isinstance(value, dict):
        return {key: _replaced(item, places) for key, item in value.items()}
    if isinstance(value, str):
        for place in sorted(places, key=len, reverse=True):
            value = re.sub(rf"{re.escape(place)}(?![\w.-])", lambda _: places[place], value)  # noqa: B023 -- called at once
    return value


def _texts(value: Any) -> Iterator[str]:
    """Every text in a profile, a configuration's places among them."""
    if isinstance(value, str | SpecConfig):
        yield str(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _texts(getattr(value, field.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        yield from _texts(tuple(value.values()))
