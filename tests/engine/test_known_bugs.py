"""The list of the engine's known faults: each met by one configuration and not by another."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from autospec.config import PLAIN, SpecConfig
from autospec.engine.args import Deployment
from autospec.engine.known_bugs import CHECKED, KNOWN_BUGS, KnownBug, known_bugs
from autospec.engine.models import ModelInfo
from autospec.engine.rules import Case

NGRAM = SpecConfig("NGRAM", num_draft_tokens=8)
EAGLE = SpecConfig("EAGLE", 3, 1, 4)
DFLASH = SpecConfig("DFLASH", options=(("block_size", 8),))
HYBRID = ModelInfo("m", Path("m"), "Qwen3_5ForCausalLM", 100, 1000, 64, "d")


def case(config: SpecConfig, *extra: str, target: ModelInfo | None = None) -> Case:
    """A configuration on a GPU with pass-through flags."""
    deployment = Deployment(model="m", device="cuda", max_running_requests=48, extra=extra)
    return Case(config, deployment, target)


MET = {
    "shared prefixes under NGRAM": (case(NGRAM), case(NGRAM, "--disable-radix-cache")),
    "custom logit processors are skipped": (
        case(EAGLE, "--enable-custom-logit-processor"),
        case(DFLASH, "--enable-custom-logit-processor"),
    ),
    "cache rows too short at page size 1": (case(DFLASH), case(EAGLE)),
    "state of hybrid models": (
        case(EAGLE, target=HYBRID),
        case(EAGLE, "--mamba-radix-cache-strategy", "extra_buffer_lazy", target=HYBRID),
    ),
    "prefix reuse under EAGLE": (
        case(EAGLE, target=replace(HYBRID, architecture="GlmMoeDsaForCausalLM")),
        case(EAGLE, target=HYBRID),
    ),
    "wide drafts on a decode server": (
        case(NGRAM, "--disaggregation-mode", "decode"),
        case(EAGLE, "--disaggregation-mode", "decode"),
    ),
}


@pytest.mark.parametrize("bug", KNOWN_BUGS, ids=lambda bug: bug.name)
def test_each_fault_is_met_where_it_lives_only(bug: KnownBug) -> None:
    """A warning that everybody gets is read by nobody."""
    met, spared = MET[bug.name]
    assert bug in known_bugs(met)
    assert bug not in known_bugs(spared)


def test_plain_decoding_meets_none() -> None:
    """The list is about speculation."""
    assert known_bugs(case(PLAIN, "--enable-custom-logit-processor")) == ()


def test_every_entry_is_dated_and_linked() -> None:
    """A reader can look it up, and see how old the knowledge is."""
    for bug in KNOWN_BUGS:
        assert re.fullmatch(r"2026(-\d\d){1,2}", bug.reported)
        assert bug.reported <= CHECKED
        assert bug.link.startswith("https://github.com/sgl-project/sglang/issues/")
