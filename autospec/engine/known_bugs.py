"""Known faults of SGLang 0.5.23 that speculation meets: a dated list, each with what helps.

Only what no rule refuses: a configuration with one of these starts, and then fails, answers wrongly
or misleads. Entries were looked up in the public issue tracker and, where the text says so, in the
engine's source; a newer SGLang needs a newer list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from autospec.engine.architectures import HYBRID_ARCHITECTURES
from autospec.engine.rules import EAGLE_FAMILY, TREE_FAMILY, Case

__all__ = ["CHECKED", "KNOWN_BUGS", "KnownBug", "known_bugs"]

#: When the list was last compared with the issue tracker.
CHECKED: Final = "2026-11-30"
_ISSUES: Final = "https://github.com/sgl-project/sglang/issues"
#: Draft tokens from which verification needs much memory beside the KV cache.
_WIDE: Final = 8


@dataclass(frozen=True, slots=True)
class KnownBug:
    """One fault of the engine.

    Attributes:
        name: how messages and tests call it.
        link: the issue.
        reported: its date.
        says: what happens, in one sentence.
        fix: what to do about it.
        touches: whether a case can meet it.
    """

    name: str
    link: str
    reported: str
    says: str
    fix: str
    touches: Callable[[Case], bool]


def known_bugs(case: Case) -> tuple[KnownBug, ...]:
    """The faults that a configuration on a deployment can meet."""
    if case.config.is_plain:
        return ()
    return tuple(bug for bug in KNOWN_BUGS if bug.touches(case))


def _shares_prefixes(case: Case) -> bool:
    return case.extra.get("disable_radix_cache") is not True


def _ngram_prefix(case: Case) -> bool:
    return case.algorithm == "NGRAM" and _shares_prefixes(case)


def _ignores_processors(case: Case) -> bool:
    asked = case.extra.get("enable_custom_logit_processor") is True
    return asked and case.algorithm in TREE_FAMILY | {"NGRAM"}


def _narrow_row(case: Case) -> bool:
    return case.algorithm in {"DFLASH", "DSPARK"} and case.deployment.page_size in (None, 1)


def _hybrid(case: Case) -> bool:
    known = case.target is not None and case.target.architecture in HYBRID_ARCHITECTURES
    lazy = case.extra.get("mamba_radix_cache_strategy") == "extra_buffer_lazy"
    return known and case.algorithm in EAGLE_FAMILY and _shares_prefixes(case) and not lazy


def _sparse_reuse(case: Case) -> bool:
    glm = case.target is not None and case.target.architecture == "GlmMoeDsaForCausalLM"
    return glm and case.algorithm in EAGLE_FAMILY and _shares_prefixes(case)


def _wide_decode(case: Case) -> bool:
    wide = (case.config.num_draft_tokens or 0) >= _WIDE or case.algorithm == "DFLASH"
    return wide and case.extra.get("disaggregation_mode") == "decode"


KNOWN_BUGS: Final = (
    KnownBug(
        "shared prefixes under NGRAM",
        f"{_ISSUES}/23392",
        "2026-04-21",
        "requests that share a prefix can change each other's answers when one is cancelled while "
        "it runs",
        "--disable-radix-cache where clients cancel requests; open when last checked",
        _ngram_prefix,
    ),
    KnownBug(
        "custom logit processors are skipped",
        f"{_ISSUES}/26330",
        "2026-05-26",
        "custom logit processors, thinking budgets among them, have no effect while EAGLE, EAGLE3, "
        "NEXTN, STANDALONE or NGRAM speculates (seen in the source)",
        "serve such requests from a plain server",
        _ignores_processors,
    ),
    KnownBug(
        "cache rows too short at page size 1",
        f"{_ISSUES}/33579",
        "2026-08",
        "a request that reaches the context length can lose cache slots, or write into another "
        "request's (seen in the source)",
        "--page-size above 1, or a --context-length above any request's",
        _narrow_row,
    ),
    KnownBug(
        "state of hybrid models",
        f"{_ISSUES}/36537",
        "2026-08-30",
        "with a full prefix cache the state of linear-attention layers can be recycled too early: "
        "drafts are all refused, or the answer repeats one token",
        "--mamba-radix-cache-strategy extra_buffer_lazy",
        _hybrid,
    ),
    KnownBug(
        "prefix reuse under EAGLE",
        f"{_ISSUES}/32459",
        "2026-07-27",
        "long conversations found about half of their cached prefix with EAGLE on, and nearly all "
        "of it without",
        "tune with conversations as long as yours, and watch cached_tokens",
        _sparse_reuse,
    ),
    KnownBug(
        "wide drafts on a decode server",
        f"{_ISSUES}/38341",
        "2026-09-07",
        "a disaggregated decode server starts and then runs out of memory in traffic, since the "
        "memory of wide verification is not set aside",
        "fewer draft tokens, or a lower --mem-fraction-static and --max-running-requests",
        _wide_decode,
    ),
)
