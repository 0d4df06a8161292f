"""One prompt, and how it is read from one entry of a prompt file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from autospec.errors import WorkloadError

__all__ = ["Message", "Prompt", "read_prompt"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, in exactly one of three forms.

    Attributes:
        index: its place among the prompts of its workload.
        line: its line in the file, or its item in a JSON array, counted from 1.
        max_new_tokens: longest answer asked for; the end-of-text token may end it before.
        text: sent as it stands.
        messages: sent through the model's chat template.
        input_ids: sent as they stand.
        label: its class, if the file names one.

    Raises:
        WorkloadError: none of the three forms is given, or more than one.
    """

    index: int
    line: int
    max_new_tokens: int
    text: str | None = None
    messages: tuple[Message, ...] | None = None
    input_ids: tuple[int, ...] | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        forms = [form for form in (self.text, self.messages, self.input_ids) if form]
        if len(forms) != 1:
            raise WorkloadError(
                f"prompt {self.index} has {len(forms)} of text, messages and input_ids,"
                " must have exactly one"
            )

    @property
    def content(self) -> object:
        """The prompt's form and content in JSON's types, with nothing else."""
        if self.messages is not None:
            return {"messages": [[message.role, message.content] for message in self.messages]}
        return {"text": self.text} if self.text is not None else {"input_ids": self.input_ids}

    @property
    def content_key(self) -> object:
        """Equal for two prompts that say the same, white space apart."""
        if self.input_ids is not None:
            return self.input_ids
        texts = [self.text] if self.text is not None else [m.content for m in self.messages or ()]
        return tuple(" ".join(text.split()) for text in texts)


def read_prompt(
    entry: Any, *, where: str, index: int, line: int, default_max_new_tokens: int
) -> Prompt:
    """Read one entry: a text, or an object with one of the keys of ``_FORMS``.

    Keys that mean nothing here are ignored, for traffic logs have many; null means absent.

    Raises:
        WorkloadError: with ``where`` and the field, without the field's content.
    """
    if isinstance(entry, str):
        entry = {"prompt": entry}
    if not isinstance(entry, dict):
        raise WorkloadError(f"{where}: must be an object, is {_kind(entry)}")
    present = [key for key in _FORMS if entry.get(key) is not None]
    if len(present) != 1:
        has = " and ".join(present) or "none"
        raise WorkloadError(f"{where}: has {has} of {', '.join(_FORMS)}, must have exactly one")
    (key,) = present
    label = entry.get("class")
    return Prompt(
        index=index,
        line=line,
        max_new_tokens=_max_new_tokens(entry, default_max_new_tokens, where),
        label=None if label is None else _text(label, f"{where}: class"),
        **_FORMS[key](entry[key], f"{where}: {key}"),
    )


def _plain(value: Any, where: str) -> dict[str, Any]:
    return {"text": _text(value, where)}


def _messages(value: Any, where: str) -> dict[str, Any]:
    turns = [
        Message(_text(turn.get("role"), f"{at}.role"), _text(turn.get("content"), f"{at}.content"))
        for at, turn in _turns(value, where)
    ]
    return {"messages": _up_to_question(turns, where)}


def _conversations(value: Any, where: str) -> dict[str, Any]:
    turns = [
        Message(_role(turn.get("from"), f"{at}.from"), _text(turn.get("value"), f"{at}.value"))
        for at, turn in _turns(value, where)
    ]
    return {"messages": _up_to_question(turns, where)}


def _input_ids(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, list):
        raise WorkloadError(f"{where}: must be a list of token ids, is {_kind(value)}")
    if not value:
        raise WorkloadError(f"{where}: must not be empty")
    for place, token in enumerate(value):
        if not isinstance(token, int) or isinstance(token, bool) or token < 0:
            raise WorkloadError(f"{where}[{place}]: must be a token id, a number from 0")
    return {"input_ids": tuple(value)}


#: Each key that holds a prompt, and what reads it into one of ``Prompt``'s forms.
_FORMS: Final[Mapping[str, Callable[[Any, str], dict[str, Any]]]] = {
    "prompt": _plain,
    "text": _plain,
    "messages": _messages,
    "conversations": _conversations,
    "input_ids": _input_ids,
}

#: The names that ShareGPT files have for the sides of a conversation, and the chat template's.
_SHAREGPT_ROLES: Final = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "system": "system",
}


def _turns(value: Any, where: str) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(value, list):
        raise WorkloadError(f"{where}: must be a list, is {_kind(value)}")
    for place, turn in enumerate(value):
        if not isinstance(turn, dict):
            raise WorkloadError(f"{where}[{place}]: must be an object, is {_kind(turn)}")
    return [(f"{where}[{place}]", turn) for place, turn in enumerate(value)]


def _up_to_question(turns: list[Message], where: str) -> tuple[Message, ...]:
    """Drop the answers at the end: they are what the server is to write."""
    while turns and turns[-1].role == "assistant":
        turns.pop()
    if not any(turn.role != "system" for turn in turns):
        raise WorkloadError(f"{where}: has no turn to answer, must have at least one")
    return tuple(turns)


def _role(value: Any, where: str) -> str:
    if not isinstance(value, str) or value not in _SHAREGPT_ROLES:
        raise WorkloadError(f"{where}: is none of {', '.join(_SHAREGPT_ROLES)}")
    return _SHAREGPT_ROLES[value]


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise WorkloadError(f"{where}: must be text, is {_kind(value)}")
    if not value.strip():
        raise WorkloadError(f"{where}: must not be empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise WorkloadError(f"{where}: has half a surrogate pair, is no Unicode text") from error
    return value


def _max_new_tokens(entry: dict[str, Any], default: int, where: str) -> int:
    value = entry.get("max_new_tokens")
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise WorkloadError(f"{where}: max_new_tokens: must be a whole number, is {_kind(value)}")
    if value < 1:
        raise WorkloadError(f"{where}: max_new_tokens: is {value}, must be at least 1")
    return value


def _kind(value: Any) -> str:
    """The JSON name of a value's type; never the value, which may be a prompt."""
    names: dict[type, str] = {
        type(None): "missing or null",
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
    }
    return names.get(type(value), "an object")
