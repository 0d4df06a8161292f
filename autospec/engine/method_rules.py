"""Rules of single drafting methods: NGRAM, DFLASH, DSPARK and UNO."""

from __future__ import annotations

from typing import Final

from autospec.engine.rules import Case, Rule

__all__ = ["METHOD_RULES"]

_BLOCK_METHODS: Final = ("DFLASH", "DSPARK")
_NGRAM_TOKENS: Final = 12
_UNO_MAX_TOKENS: Final = 128
_UNO_MAX_SLOTS: Final = 2048
_UNO_REFUSED_FLAGS: Final = ("enable_deterministic_inference", "enable_strict_thinking")
_UNO_TREE_REFUSED_FLAGS: Final = ("enable_two_batch_overlap", "enable_pdmux")


def _options(case: Case) -> str | None:
    for name, _ in case.config.options:
        owners = _BLOCK_METHODS if name == "block_size" else ("NGRAM",)
        if case.algorithm not in owners:
            return f"{name} has no effect here, it belongs to {' and '.join(owners)}"
    return None


def _derived_shape(case: Case) -> str | None:
    if case.algorithm not in (*_BLOCK_METHODS, "NGRAM"):
        return None
    given = {"steps": case.config.num_steps, "topk": case.config.topk}
    words = [f"{word}={value}" for word, value in given.items() if value is not None]
    if not words:
        return None
    return f"SGLang sets steps and topk itself for this method, leave out {' '.join(words)}"


def _ngram_draft(case: Case) -> str | None:
    if case.algorithm != "NGRAM" or case.config.draft_model is None:
        return None
    return "drafts from earlier output and takes no draft model"


def _ngram_breadth(case: Case) -> str | None:
    if case.algorithm != "NGRAM":
        return None
    least, most = case.number("ngram_min_bfs_breadth", 1), case.number("ngram_max_bfs_breadth", 10)
    if 1 <= least <= most:
        return None
    return f"needs 1 <= min_breadth <= breadth, got min_breadth={least} breadth={most}"


def _ngram_depth(case: Case) -> str | None:
    depth = case.number("ngram_max_trie_depth", 18)
    if case.algorithm != "NGRAM" or depth > 1:
        return None
    return f"trie_depth must be above 1, got {depth}"


def _ngram_match(case: Case) -> str | None:
    match = case.config.option("ngram_match_type")
    if case.algorithm != "NGRAM" or match in (None, "BFS", "PROB"):
        return None
    return f"match must be BFS or PROB, got {match}"


def _ngram_corpus(case: Case) -> str | None:
    if case.algorithm != "NGRAM" or case.config.corpus is None:
        return None
    most = (case.config.num_draft_tokens or _NGRAM_TOKENS) - 1
    budget = case.number("ngram_external_sam_budget", 0)
    if 1 <= budget <= most:
        return None
    return f"a corpus needs sam_budget from 1 to tokens - 1 = {most}, got {budget}"


def _dflash_draft(case: Case) -> str | None:
    if case.algorithm != "DFLASH" or case.config.draft_model:
        return None
    return "needs a draft model"


def _dspark_draft(case: Case) -> str | None:
    if case.algorithm != "DSPARK" or case.config.draft_model or case.target is None:
        return None
    # A repository may keep its draft in a subfolder that only the server looks into.
    if case.target.bundles_dspark or case.target.path is None:
        return None
    return "needs a draft model, since the target brings none along"


def _block_size(case: Case) -> str | None:
    block, tokens = case.config.option("block_size"), case.config.num_draft_tokens
    if case.algorithm not in _BLOCK_METHODS or not isinstance(block, int):
        return None
    # DFLASH counts the root in its block, DSPARK does not.
    root = 1 if case.algorithm == "DSPARK" else 0
    if block + root < 2:
        return f"block={block} leaves no room for a draft, must be at least {2 - root}"
    if tokens is None or tokens == block + root:
        return None
    return f"block={block} makes tokens={block + root}, got tokens={tokens}; give one of them"


def _uno_adapter(case: Case) -> str | None:
    if case.algorithm != "UNO" or case.config.draft_model:
        return None
    return "needs its draft adapter, given as the draft model"


def _uno_tokens(case: Case) -> str | None:
    if case.algorithm != "UNO" or case.config.num_draft_tokens is not None:
        return None
    return "needs tokens, the width of a verify step"


def _uno_shape(case: Case) -> str | None:
    if case.algorithm != "UNO":
        return None
    steps, topk = case.config.num_steps, case.topk
    if topk == 1:
        return None if steps in (None, 1) else f"with topk=1 SGLang sets steps to 1, not {steps}"
    if not steps:
        return "with topk above 1 needs steps of at least 1"
    tokens = case.config.num_draft_tokens
    return None if tokens is None else _uno_tree(tokens, steps, topk)


def _uno_tree(tokens: int, steps: int, topk: int) -> str | None:
    """Bounds of ``_handle_uno``: Q tokens, F = steps + 1, K = topk."""
    parents = topk * (steps - 1) + 1
    # A full tree of this depth; deeper than the parent list allows it need not be counted.
    capacity = sum(topk**level for level in range(min(steps, _UNO_MAX_TOKENS) + 1))
    least = steps + 1
    most = min(_UNO_MAX_TOKENS, _UNO_MAX_SLOTS // topk, capacity, parents + 1)
    if least <= tokens <= most:
        return None
    return f"a tree of steps={steps} topk={topk} needs tokens from {least} to {most}, got {tokens}"


def _uno_deployment(case: Case) -> str | None:
    if case.algorithm != "UNO":
        return None
    if case.deployment.tp_size != 1:
        return f"runs with tp_size=1 only, not {case.deployment.tp_size}"
    other = sorted(case.backends - {"fa3"})
    if other:
        return f"needs attention backend fa3, not {other[0]}"
    refused = _UNO_REFUSED_FLAGS + (_UNO_TREE_REFUSED_FLAGS if case.topk > 1 else ())
    given = [name for name in refused if case.extra.get(name)]
    return f"does not run with --{given[0].replace('_', '-')}" if given else None


METHOD_RULES: Final = (
    Rule(
        "option-owner",
        "arg_groups/fields/spec.py speculative_ngram_match_type",
        "A method is given its own options only.",
        _options,
    ),
    Rule(
        "derived-shape",
        "arg_groups/speculative_hook.py _handle_dflash, _handle_dspark, _handle_ngram",
        "Steps and topk are not set where SGLang derives them.",
        _derived_shape,
    ),
    Rule(
        "ngram-no-draft",
        "speculative/ngram_worker.py NGRAM has no draft model",
        "NGRAM has no draft model.",
        _ngram_draft,
    ),
    Rule(
        "ngram-breadth",
        "../kernels/jit/csrc/ngram_corpus/ngram.cpp min_bfs_breadth",
        "1 <= least breadth <= largest breadth.",
        _ngram_breadth,
    ),
    Rule(
        "ngram-depth",
        "../kernels/jit/csrc/ngram_corpus/ngram.cpp max_trie_depth",
        "The trie is more than one token deep.",
        _ngram_depth,
    ),
    Rule(
        "ngram-match",
        "arg_groups/fields/spec.py speculative_ngram_match_type",
        "The match type is BFS or PROB.",
        _ngram_match,
    ),
    Rule(
        "ngram-corpus",
        "arg_groups/speculative_hook.py _handle_ngram",
        "An external corpus has a budget of 1 to draft tokens - 1.",
        _ngram_corpus,
    ),
    Rule(
        "dflash-draft",
        "arg_groups/speculative_hook.py _handle_dflash",
        "DFLASH has a draft model.",
        _dflash_draft,
    ),
    Rule(
        "dspark-draft",
        "arg_groups/speculative_hook.py _handle_dspark",
        "DSPARK has a draft model, or the target brings one.",
        _dspark_draft,
    ),
    Rule(
        "block-size",
        "arg_groups/speculative_hook.py _handle_dflash, _handle_dspark",
        "DFLASH's draft tokens are its block, DSPARK's its block + 1.",
        _block_size,
    ),
    Rule(
        "uno-adapter",
        "arg_groups/speculative_hook.py _handle_uno",
        "UNO has its adapter.",
        _uno_adapter,
    ),
    Rule(
        "uno-tokens",
        "arg_groups/speculative_hook.py _handle_uno",
        "UNO is given its draft tokens.",
        _uno_tokens,
    ),
    Rule(
        "uno-shape",
        "arg_groups/speculative_hook.py _handle_uno",
        "UNO's tree fits its kernels: Q >= F, Q <= 128, QK <= 2048, Q - 1 <= K(F - 2) + 1.",
        _uno_shape,
    ),
    Rule(
        "uno-deployment",
        "arg_groups/speculative_hook.py _handle_uno",
        "UNO runs on one GPU with fa3 and without the features it names.",
        _uno_deployment,
    ),
)
