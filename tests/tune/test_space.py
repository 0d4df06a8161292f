"""Which configurations a search may try."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autospec.config import SpecConfig
from autospec.errors import ConfigError
from autospec.tune.space import DEFAULT_VALUES, SearchSpace, enumerate_space, parse_space
from tests.tune.fakes import tree_bound

DRAFTS = {"STANDALONE": "/s", "EAGLE": "/e", "EAGLE3": "/3", "DFLASH": "/f"}
spaces = st.builds(
    lambda chosen, optional: SearchSpace(
        tuple(chosen | optional), tuple((name, DRAFTS[name]) for name in chosen if name in DRAFTS)
    ),
    st.sets(st.sampled_from(["NGRAM", *DRAFTS])),
    st.sets(st.sampled_from(["PLAIN", "NEXTN", "DSPARK"]), min_size=1),
)


def texts(space: SearchSpace) -> list[str]:
    """The candidates of a space, as text without the draft model."""
    return [config.label for config in enumerate_space(space, tree_bound).candidates]


@settings(max_examples=25, deadline=None)
@given(spaces)
def test_candidates_are_sorted_unique_valid_and_never_plain(space: SearchSpace) -> None:
    """What may run is apart from what may not, and nothing is lost or listed twice."""
    listed = enumerate_space(space, tree_bound)
    assert list(listed.candidates) == sorted(set(listed.candidates))
    assert not any(config.is_plain or tree_bound(config) for config in listed.candidates)
    assert {config.algorithm for config in listed.candidates} == set(space.searched)
    refused = [config for config, _ in listed.refused]
    assert refused == sorted(set(refused) - set(listed.candidates))
    assert all(reason for _, reason in listed.refused)


def test_a_method_has_tens_of_candidates() -> None:
    """The space of one method is worth searching and quick to list."""
    for name in DEFAULT_VALUES:
        drafts = ((name, DRAFTS[name]),) if name in DRAFTS else ()
        size = len(texts(SearchSpace((name,), drafts)))
        assert 3 <= size <= 100, name


def test_ngram_and_every_method_with_a_draft_are_searched_unless_named() -> None:
    """The user who names drafts need not name algorithms."""
    space = SearchSpace(drafts=(("EAGLE3", "/e"),))
    assert space.searched == ("EAGLE3", "NGRAM")
    assert SearchSpace(("PLAIN", "NGRAM"), (("EAGLE3", "/e"),)).searched == ("NGRAM",)
    assert texts(SearchSpace(("PLAIN",))) == []


def test_a_chain_checks_one_token_more_than_its_steps() -> None:
    """With one branch the number of tokens follows from the steps."""
    space = parse_space("topk=1 steps=1,4", SearchSpace(("EAGLE3",), (("EAGLE3", "/e"),)))
    assert texts(space) == ["EAGLE3 steps=1 topk=1 tokens=2", "EAGLE3 steps=4 topk=1 tokens=5"]


def test_every_draft_model_is_combined_with_every_shape() -> None:
    """Two drafts for one algorithm give the shapes twice."""
    space = SearchSpace(("STANDALONE",), (("STANDALONE", "/a"), ("STANDALONE", "/b")))
    candidates = enumerate_space(space, tree_bound).candidates
    shapes = {path: [c.label for c in candidates if c.draft_model == path] for path in ("/a", "/b")}
    assert shapes["/a"] == shapes["/b"]
    assert len(candidates) == 2 * len(shapes["/a"])


def test_a_draft_path_with_spaces_and_quotes_survives() -> None:
    """Paths are data."""
    space = SearchSpace(("EAGLE3",), (("EAGLE3", "/my models/it's $HOME"),))
    assert {c.draft_model for c in enumerate_space(space, tree_bound).candidates} == {
        "/my models/it's $HOME"
    }


def test_block_methods_vary_their_block_alone() -> None:
    """A block method has one knob; DSPARK's draft may come with the target."""
    assert texts(SearchSpace(("DSPARK",))) == [
        "DSPARK block=4",
        "DSPARK block=8",
        "DSPARK block=16",
    ]


def test_what_repeats_a_smaller_shape_is_refused_with_the_reason() -> None:
    """A tree too small for its depth, and more branches than tokens, are not tried."""
    listed = enumerate_space(
        parse_space(
            "tokens=4 steps=5 topk=4 breadth=8 match=BFS",
            SearchSpace(("NGRAM", "EAGLE3"), (("EAGLE3", "/e"),)),
        ),
        lambda _: (),
    )
    assert listed.candidates == ()
    assert [reason for _, reason in listed.refused] == [
        "tokens=4 cannot hold the root and a path of steps=5",
        "breadth=8 is more than the tokens=4 of a step",
    ]


def test_every_rule_broken_is_named() -> None:
    """What the engine says is kept word for word."""
    space = parse_space("tokens=8 breadth=1 match=BFS")
    listed = enumerate_space(space, lambda _: ["one rule", "another"])
    config = SpecConfig.parse("NGRAM tokens=8 breadth=1 match=BFS")
    assert listed.refused == ((config, "one rule; another"),)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"algorithms": ("EAGEL",)}, "unknown algorithm 'EAGEL', must be one of PLAIN, NGRAM"),
        ({"drafts": (("MEDUSA", "/m"),)}, "unknown algorithm 'MEDUSA'"),
        ({"algorithms": ("STANDALONE",)}, "needs a draft model: --draft STANDALONE=PATH"),
        ({"drafts": (("NGRAM", "/n"),)}, "NGRAM takes no draft model, got '/n'"),
        ({"drafts": (("PLAIN", "/n"),)}, "PLAIN takes no draft model"),
        ({"drafts": (("EAGLE3", ""),)}, "EAGLE3: the draft model is empty"),
        ({"narrowed": (("NGRAM.topk", (1,)),)}, "'NGRAM.topk' is no ALGORITHM.knob"),
        ({"narrowed": (("NGRAM.tokens", ()),)}, "NGRAM.tokens has no values"),
    ],
)
def test_a_space_that_cannot_be_is_refused(space: dict[str, tuple[str, ...]], message: str) -> None:
    """The message names the value and what would be right."""
    with pytest.raises(ConfigError) as caught:
        SearchSpace(**space)  # type: ignore[arg-type]  # each case is wrong in its own way
    assert message in str(caught.value)


def test_narrowing_holds_for_every_searched_method_unless_one_is_named() -> None:
    """A word with an algorithm goes before one without, wherever it stands."""
    space = parse_space(
        "NGRAM.tokens=16 tokens=8 match=BFS breadth=1 steps=2 topk=4",
        SearchSpace(drafts=(("EAGLE3", "/e"),)),
    )
    assert texts(space) == [
        "EAGLE3 steps=2 topk=4 tokens=8",
        "NGRAM tokens=16 match=BFS breadth=1",
    ]
    assert space.values("EAGLE3")["tokens"] == (8,)


def test_narrowing_twice_keeps_what_the_second_does_not_mention() -> None:
    """A narrowed space can be narrowed again."""
    space = parse_space("tokens=8", parse_space("breadth=4,1,4 match=BFS"))
    assert texts(space) == [
        "NGRAM tokens=8 match=BFS breadth=1",
        "NGRAM tokens=8 match=BFS breadth=4",
    ]


def test_no_words_narrow_nothing() -> None:
    """An empty text leaves the space as it was."""
    assert parse_space("  ") == SearchSpace()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tokens", "'tokens' must be KNOB=VALUE"),
        ("width=3", "unknown knob 'width'"),
        ("NGRAM.width=3", "unknown knob 'NGRAM.width'"),
        ("EAGEL.tokens=3", "unknown algorithm 'EAGEL'"),
        ("tokens=4 tokens=8", "tokens is given twice"),
        ("tokens=4,x", "tokens is 'x', must be whole numbers"),
        ("tokens=", "tokens is '', must be whole numbers"),
        ("tokens=0", "tokens is '0'"),
        ("tokens=-4", "tokens is '-4'"),
        ("tokens=²", "tokens is '²'"),
        ("match=bfs", "match is 'bfs', must be one of"),
        ("steps=3", "steps concerns no searched method (NGRAM)"),
        ("EAGLE3.steps=3", "EAGLE3.steps concerns no searched method (NGRAM)"),
    ],
)
def test_a_word_that_is_wrong_is_refused(text: str, message: str) -> None:
    """A mistyped knob or value is never silently the default."""
    with pytest.raises(ConfigError) as caught:
        parse_space(text)
    assert message in str(caught.value)


@given(st.text(max_size=30))
def test_any_text_narrows_or_is_refused(text: str) -> None:
    """No text makes anything but a space or a ConfigError."""
    try:
        space = parse_space(text)
    except ConfigError as error:
        assert "\n" not in str(error)  # noqa: PT017  an error is one of two right outcomes
    else:
        assert texts(space) is not None


def test_corpus_adds_ngram_with_it_at_every_budget() -> None:
    """Each shape without the corpus stays; the label tells the budget, not where the file is."""
    space = parse_space(
        "tokens=8 breadth=1 match=BFS sam_budget=2,4", SearchSpace(corpus="/c/a.jsonl")
    )
    candidates = enumerate_space(space, tree_bound).candidates
    place, budget = "ngram_external_corpus_path", "ngram_external_sam_budget"
    assert {(c.option(place), c.option(budget)) for c in candidates} == {
        (None, None),
        ("/c/a.jsonl", 2),
        ("/c/a.jsonl", 4),
    }
    assert {config.label for config in candidates} == {
        "NGRAM tokens=8 match=BFS breadth=1",
        "NGRAM tokens=8 sam_budget=2 match=BFS breadth=1",
        "NGRAM tokens=8 sam_budget=4 match=BFS breadth=1",
    }


def test_budget_of_a_corpus_means_nothing_without_one() -> None:
    """The knob is refused, and no configuration has it."""
    with pytest.raises(ConfigError, match="sam_budget concerns no searched method"):
        parse_space("sam_budget=2", SearchSpace())
    assert not any("sam_budget" in text for text in texts(SearchSpace()))
