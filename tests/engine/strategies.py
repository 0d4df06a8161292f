"""Configurations that SGLang accepts on a GPU, for the engine's tests."""

from __future__ import annotations

from hypothesis import strategies as st

from autospec.config import PLAIN, SpecConfig
from autospec.engine.rules import tree_capacity
from tests.strategies import paths


@st.composite
def valid_configs(draw: st.DrawFn) -> SpecConfig:
    """Any configuration that breaks no rule on a CUDA deployment with everything else default."""
    build = draw(st.sampled_from([_plain, _tree, _ngram, _block, _uno]))
    return draw(build())


def _plain() -> st.SearchStrategy[SpecConfig]:
    return st.just(PLAIN)


@st.composite
def _tree(draw: st.DrawFn) -> SpecConfig:
    algorithm = draw(st.sampled_from(["EAGLE", "EAGLE3", "NEXTN", "STANDALONE"]))
    steps, topk = draw(st.integers(1, 16)), draw(st.integers(1, 16))
    most = steps + 1 if topk == 1 else min(1024, tree_capacity(steps, topk))
    tokens = draw(st.integers(steps + 1, most))
    draft = draw(paths) if algorithm == "STANDALONE" else draw(st.none() | paths)
    return SpecConfig(algorithm, steps, topk, tokens, draft)


@st.composite
def _ngram(draw: st.DrawFn) -> SpecConfig:
    breadth = draw(st.integers(1, 20))
    options: dict[str, int | str] = {"ngram_max_bfs_breadth": breadth}
    options |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "ngram_min_bfs_breadth": st.integers(1, breadth),
                "ngram_match_type": st.sampled_from(["BFS", "PROB"]),
                "ngram_max_trie_depth": st.integers(2, 40),
            },
        )
    )
    tokens = draw(st.integers(2, 64))
    if draw(st.booleans()):
        options["ngram_external_corpus_path"] = draw(paths)
        options["ngram_external_sam_budget"] = draw(st.integers(1, tokens - 1))
    return SpecConfig("NGRAM", num_draft_tokens=tokens, options=tuple(options.items()))


@st.composite
def _block(draw: st.DrawFn) -> SpecConfig:
    algorithm = draw(st.sampled_from(["DFLASH", "DSPARK"]))
    block = draw(st.integers(2, 32))
    both = block + (algorithm == "DSPARK")
    options = draw(st.sampled_from([(), (("block_size", block),)]))
    tokens = draw(st.sampled_from([None, both]))
    return SpecConfig(algorithm, num_draft_tokens=tokens, draft_model=draw(paths), options=options)


@st.composite
def _uno(draw: st.DrawFn) -> SpecConfig:
    steps, topk = draw(st.integers(2, 8)), draw(st.integers(1, 8))
    if topk == 1:
        tokens = draw(st.integers(2, 128))
        return SpecConfig("UNO", num_draft_tokens=tokens, draft_model=draw(paths))
    tokens = draw(st.integers(steps + 1, topk * (steps - 1) + 2))
    return SpecConfig("UNO", steps, topk, tokens, draw(paths))
