"""What a profile says of a server: which of its figures hold, and how to measure anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autospec.config import PLAIN, SpecConfig
from tests.test_profile import make_profile
from tests.watch.made import CHAIN, chain_profile, command_of, known


@pytest.mark.parametrize(
    "config",
    [CHAIN, PLAIN, replace(CHAIN, draft_model="elsewhere/draft"), replace(CHAIN, topk=None)],
)
def test_step_times_hold_for_the_same_method_and_for_plain_decoding(config: SpecConfig) -> None:
    """The draft model may lie elsewhere."""
    costs, why = known().costs_for(config)
    assert costs is not None
    assert why is None


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (replace(CHAIN, algorithm="STANDALONE"), "the server runs STANDALONE"),
        (SpecConfig("EAGLE3", 3, 4, 8), "p.yaml is of EAGLE3 steps=3 topk=1"),
        (SpecConfig("EAGLE3", 5, 1, 6), "the server drafts 5 deep, p.yaml has step times of 0, 3"),
    ],
)
def test_other_servers_are_told_apart(config: SpecConfig, says: str) -> None:
    """Another method or shape has other step times, and the note says what differs."""
    costs, why = known().costs_for(config)
    assert costs is None
    assert why is not None
    assert says in why


def test_trees_of_another_width_are_other_servers() -> None:
    """What is verified decides a step's time."""
    ngram = SpecConfig("NGRAM", num_draft_tokens=8, options=(("ngram_max_bfs_breadth", 4),))
    asked = known(replace(chain_profile(), verdict=replace(chain_profile().verdict, best=ngram)))
    assert asked.costs is None
    asked = replace(asked, costs=known().costs, best=ngram)
    assert asked.costs_for(replace(ngram, num_draft_tokens=4))[0] is None
    chain = replace(ngram, num_draft_tokens=4, options=(("ngram_max_bfs_breadth", 1),))
    longer = replace(chain, num_draft_tokens=8)
    assert replace(asked, best=longer).costs_for(chain)[0] is not None


def test_a_profile_without_step_times_says_so() -> None:
    """It can be watched with all the same."""
    costs, why = known(make_profile()).costs_for(CHAIN)
    assert costs is None
    assert why == "p.yaml holds no step times of plain decoding and of speculation"


@pytest.mark.parametrize(
    ("command", "again"),
    [
        ("autospec tune m --prompts p.jsonl", "autospec tune m --prompts p.jsonl"),
        ("autospec tune m --study old -o p.yaml", "autospec tune m -o p.yaml"),
        ("autospec tune m --study=old --seed 3", "autospec tune m --seed 3"),
        ("autospec tune 'a b' --budget 45m", "autospec tune 'a b' --budget 45m"),
        ("autospec tune --resume old", "autospec tune models/m --prompts p.jsonl -o p.yaml"),
        ("pytest -q", "autospec tune models/m --prompts p.jsonl -o p.yaml"),
        ("autospec tune 'm", "autospec tune models/m --prompts p.jsonl -o p.yaml"),
    ],
)
def test_measuring_anew_is_the_command_of_the_profile_in_a_new_study(
    command: str, again: str
) -> None:
    """Without the study's folder; from the profile's own fields where that was a resumption."""
    assert command_of(command) == again
