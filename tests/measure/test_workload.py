"""What a prompt file may say, and what is said of one that cannot be used."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.errors import WorkloadError
from autospec.measure.prompt import Prompt
from autospec.measure.workload import Workload, read_workload
from autospec.measurement import Sampling
from tests.measure.virtual import chat

TEXT = "swordfish"


def read(folder: Path, content: str | bytes, name: str = "traffic.jsonl") -> Workload:
    """Read a file with this content; answers are 64 tokens long by default."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_workload(path, default_max_new_tokens=64)


def lines(*entries: Any) -> str:
    """Entries as JSON lines."""
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def test_each_form_of_prompt_is_read(tmp_path: Path) -> None:
    """``prompt`` and ``text`` are sent as they stand, messages as messages, ids as ids."""
    workload = read(
        tmp_path,
        lines(
            {"prompt": "one"},
            {"text": "two", "max_new_tokens": 5, "class": "code"},
            {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]},
            {"input_ids": [1, 0, 7]},
        ),
    )
    assert workload.prompts == (
        Prompt(0, 1, 64, text="one"),
        Prompt(1, 2, 5, text="two", label="code"),
        Prompt(2, 3, 64, messages=chat(("system", "s"), ("user", "u"))),
        Prompt(3, 4, 64, input_ids=(1, 0, 7)),
    )
    assert workload.place(workload.prompts[1]).endswith("traffic.jsonl, line 2")


def test_a_conversation_is_read_up_to_its_last_question(tmp_path: Path) -> None:
    """The answers at the end are left to the server; those in between are context."""
    turns = [("human", "q1"), ("gpt", "a1"), ("human", "q2"), ("gpt", "a2"), ("gpt", "a3")]
    conversation = {"conversations": [{"from": who, "value": text} for who, text in turns]}
    logged = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    workload = read(tmp_path, lines(conversation, {"messages": logged}))
    first = chat(("user", "q1"), ("assistant", "a1"), ("user", "q2"))
    assert [p.messages for p in workload.prompts] == [first, chat(("user", "q"))]


def test_keys_that_mean_nothing_here_and_nulls_are_ignored(tmp_path: Path) -> None:
    """Traffic logs carry more than prompts."""
    entry = {"id": 7, "prompt": "x", "text": None, "class": None, "max_new_tokens": None}
    assert read(tmp_path, lines(entry)).prompts == (Prompt(0, 1, 64, text="x"),)


def test_a_json_array_is_counted_in_items(tmp_path: Path) -> None:
    """ShareGPT files are one array, perhaps in one line."""
    workload = read(tmp_path, json.dumps([{"prompt": "x"}, {"prompt": "y"}]), "sharegpt.json")
    assert [p.text for p in workload.prompts] == ["x", "y"]
    assert workload.place(workload.prompts[1]).endswith("sharegpt.json, item 2")
    with pytest.raises(WorkloadError, match="item 2: prompt: must be text, is a number"):
        read(tmp_path, json.dumps([{"prompt": "x"}, {"prompt": 1}]), "sharegpt.json")


@pytest.mark.parametrize("name", ["prompts.txt", "prompts"])
def test_other_files_hold_one_text_a_line(tmp_path: Path, name: str) -> None:
    """Blank lines are skipped and counted, and only a line feed ends a line."""
    workload = read(tmp_path, "[INST] one\r\n\n two\u2028still \n", name)
    assert [(p.line, p.text) for p in workload.prompts] == [
        (1, "[INST] one"),
        (3, "two\u2028still"),
    ]


def test_a_text_file_is_text_even_if_it_looks_like_json(tmp_path: Path) -> None:
    """The suffix decides before the content does."""
    assert [p.text for p in read(tmp_path, "{x}\n", "prompts.txt").prompts] == ["{x}"]


def test_standard_input_is_read_by_its_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """``-`` takes JSON lines and plain lines; a byte-order mark does not count."""
    for content, text in [(b'\xef\xbb\xbf{"prompt": "x"}\n', "x"), (b"plain\n", "plain")]:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))
        workload = read_workload("-", default_max_new_tokens=8)
        assert [p.text for p in workload.prompts] == [text]
        assert workload.name == "standard input"


def test_prompts_that_repeat_an_earlier_one_are_left_out_with_a_warning(tmp_path: Path) -> None:
    """Whatever the form, white space or length of answer: the content counts."""
    workload = read(
        tmp_path,
        lines(
            {"prompt": "say  hello"},
            {"text": " say hello\n", "max_new_tokens": 3},
            {"messages": [{"role": "user", "content": "say hello"}]},
            {"prompt": "else"},
            {"input_ids": [1]},
            {"input_ids": [1]},
        ),
    )
    assert [(p.index, p.line) for p in workload.prompts] == [(0, 1), (1, 4), (2, 5)]
    (warning,) = workload.warnings
    assert warning.endswith("3 of 6 prompts repeat earlier ones and were left out")


def test_no_repeats_no_warning(tmp_path: Path) -> None:
    """A clean file has nothing to say."""
    assert read(tmp_path, lines({"prompt": "x"}, {"prompt": "y"})).warnings == ()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\xef\xbb\xbf\n", "has no prompts"),
        (b'{"prompt": "fine"}\n{"prompt": "\xff"}', "line 2: not UTF-8 at byte 31"),
        ("hello".encode("utf-16"), "line 1: not UTF-8 at byte 0"),
        (b'{"prompt": "fine"}\n{"prompt": "swordfish', "line 2: not JSON, or cut off"),
        (b'{"prompt": "swordfish"', "line 1: not JSON, or cut off"),
        (b"swordfish\n", "line 1: not JSON, or cut off"),
        (b'[{"prompt": "swordfish"},', "not JSON, or cut off"),
        (b"9" * 5000, "line 1: not JSON"),
        (b"[" * 100_000, "line 1: not JSON"),
        (b"[1]\n", "line 1: must be an object, is a list"),
        (b"[]\n", "line 1: must be an object, is a list"),
        (b"null\n", "line 1: must be an object, is missing or null"),
        (b"{}\n", "line 1: has none of prompt, text, messages, conversations, input_ids"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_its_line(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    """One line that names the file and the place, and repeats nothing of the prompts."""
    with pytest.raises(WorkloadError) as caught:
        read(tmp_path, content)
    assert problem in str(caught.value)
    assert_is_discreet(caught.value)


TURN = {"role": "user", "content": TEXT}


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"prompt": TEXT, "text": TEXT}, "has prompt and text of"),
        ({"prompt": [TEXT]}, "prompt: must be text, is a list"),
        ({"prompt": {"x": TEXT}}, "prompt: must be text, is an object"),
        ({"text": True}, "text: must be text, is true or false"),
        ({"text": 1.5}, "text: must be text, is a number"),
        ({"text": " \n"}, "text: must not be empty"),
        ({"text": TEXT + "\ud800"}, "text: has half a surrogate pair"),
        ({"text": TEXT, "class": 3}, "class: must be text, is a number"),
        ({"text": TEXT, "class": ""}, "class: must not be empty"),
        ({"text": TEXT, "max_new_tokens": "5"}, "max_new_tokens: must be a whole number"),
        ({"text": TEXT, "max_new_tokens": 5.0}, "max_new_tokens: must be a whole number"),
        ({"text": TEXT, "max_new_tokens": True}, "max_new_tokens: must be a whole number"),
        ({"text": TEXT, "max_new_tokens": 0}, "max_new_tokens: is 0, must be at least 1"),
        ({"messages": TEXT}, "messages: must be a list, is text"),
        ({"messages": []}, "messages: has no turn to answer"),
        ({"messages": [TEXT]}, "messages[0]: must be an object, is text"),
        ({"messages": [TURN, {"content": TEXT}]}, "messages[1].role: must be text, is missing"),
        ({"messages": [TURN, {"role": "user"}]}, "messages[1].content: must be text, is missing"),
        ({"messages": [TURN | {"content": [TEXT]}]}, "messages[0].content: must be text"),
        ({"messages": [TURN | {"role": "system"}]}, "messages: has no turn to answer"),
        ({"messages": [TURN | {"role": "assistant"}]}, "messages: has no turn to answer"),
        ({"conversations": [{"from": TEXT, "value": "x"}]}, "conversations[0].from: is none of"),
        ({"conversations": [{"from": "human"}]}, "conversations[0].value: must be text"),
        ({"conversations": [{"from": "gpt", "value": TEXT}]}, "conversations: has no turn to"),
        ({"input_ids": TEXT}, "input_ids: must be a list of token ids, is text"),
        ({"input_ids": []}, "input_ids: must not be empty"),
        ({"input_ids": [1, -1]}, "input_ids[1]: must be a token id"),
        ({"input_ids": [True]}, "input_ids[0]: must be a token id"),
        ({"input_ids": [1.0]}, "input_ids[0]: must be a token id"),
    ],
)
def test_a_wrong_field_is_refused_by_name(tmp_path: Path, entry: Any, problem: str) -> None:
    """File, line and field; never what stood in it."""
    with pytest.raises(WorkloadError) as caught:
        read(tmp_path, lines({"prompt": "fine"}, entry))
    assert f"line 2: {problem}" in str(caught.value)
    assert_is_discreet(caught.value)


def assert_is_discreet(error: WorkloadError) -> None:
    """An error names the file in one line and no prompt."""
    assert "traffic.jsonl" in str(error)
    assert "\n" not in str(error)
    assert TEXT not in str(error)


def test_a_file_that_is_not_there_or_no_file_is_refused(tmp_path: Path) -> None:
    """With the system's reason."""
    for path, reason in [(tmp_path / "none", "No such file"), (tmp_path, "Is a directory")]:
        with pytest.raises(WorkloadError, match=reason):
            read_workload(path, default_max_new_tokens=8)


def test_a_default_answer_of_no_tokens_is_refused(tmp_path: Path) -> None:
    """An answer has at least one token."""
    with pytest.raises(WorkloadError, match="max_new_tokens is 0"):
        read_workload(tmp_path / "any", default_max_new_tokens=0)


@pytest.mark.parametrize("forms", [{}, {"text": "x", "input_ids": (1,)}])
def test_a_prompt_has_exactly_one_form(forms: dict[str, Any]) -> None:
    """None or two of them is an error."""
    with pytest.raises(WorkloadError, match="must have exactly one"):
        Prompt(0, 1, 8, **forms)


def test_the_fingerprint_is_of_the_content_alone(tmp_path: Path) -> None:
    """File name, form of file and ignored keys do not matter; prompts and sampling do."""
    first = read(tmp_path, lines({"prompt": "x"}, {"prompt": "y"}))
    same = read(tmp_path, json.dumps([{"text": "x", "id": 1}, {"text": "y"}]), "copy.json")
    assert same.fingerprint == first.fingerprint
    assert len(first.fingerprint) == 64
    others = [
        read(tmp_path, lines({"prompt": "y"}, {"prompt": "x"})),
        read(tmp_path, lines({"prompt": "x"}, {"prompt": "y", "max_new_tokens": 63})),
        read(tmp_path, lines({"prompt": "x"}, {"prompt": "y", "class": "c"})),
        read(tmp_path, lines({"prompt": "x"}, {"messages": [{"role": "user", "content": "y"}]})),
        read_workload(
            tmp_path / "copy.json", default_max_new_tokens=64, sampling=Sampling(temperature=1)
        ),
    ]
    assert len({first.fingerprint, *(w.fingerprint for w in others)}) == 6


KEYS = [
    *("prompt", "text", "messages", "conversations", "input_ids"),
    *("class", "max_new_tokens", "role", "content", "from", "value"),
]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(content=st.binary(max_size=60) | st.lists(JSON_VALUES, max_size=4).map(lambda v: lines(*v)))
def test_any_content_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes | str
) -> None:
    """No content whatever leads to another kind of error."""
    folder = tmp_path_factory.getbasetemp()
    problem, prompts = "", tuple[Prompt, ...]()
    try:
        prompts = read(folder, content).prompts
    except WorkloadError as error:
        problem = str(error)
    assert "\n" not in problem
    assert bool(problem) != bool(prompts)
    assert [p.index for p in prompts] == list(range(len(prompts)))
    assert len({p.content_key for p in prompts}) == len(prompts)
