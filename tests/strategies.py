"""Hypothesis strategies shared by the tests."""

from __future__ import annotations

from hypothesis import strategies as st

from autospec.config import PLAIN, SpecConfig

paths = st.text(alphabet="abz09_./ '-$\"", min_size=1, max_size=20)


@st.composite
def spec_configs(draw: st.DrawFn) -> SpecConfig:
    """Any configuration that holds the shape rules; an engine may still refuse it."""
    algorithm = draw(st.sampled_from(["PLAIN", "NGRAM", "STANDALONE", "EAGLE3", "DFLASH"]))
    if algorithm == "PLAIN":
        return PLAIN
    options: dict[str, int | str] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "ngram_max_bfs_breadth": st.integers(0, 20),
                "ngram_match_type": st.sampled_from(["BFS", "PROB"]),
                "block_size": st.integers(0, 32),
            },
        )
    )
    return SpecConfig(
        algorithm,
        num_steps=draw(st.none() | st.integers(0, 16)),
        topk=draw(st.none() | st.integers(1, 16)),
        num_draft_tokens=draw(st.none() | st.integers(1, 64)),
        draft_model=draw(st.none() | paths),
        options=tuple(options.items()),
    )
