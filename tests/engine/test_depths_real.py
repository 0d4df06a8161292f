"""Depths of a real chain in one launch against a launch each: the same accept length."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autospec import demo
from autospec.measure.harness import Progress
from autospec.tune.seen import Seen, seen_of
from autospec.tuning.arm import Arms
from autospec.tuning.prepare import prepare
from autospec.tuning.request import TuneRequest

pytestmark = pytest.mark.engine


class Silent:
    """Told of everything, says nothing."""

    def phase(self, text: str) -> None:
        """Say nothing."""

    def pass_done(self, progress: Progress) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""


def test_depths_in_one_launch_accept_what_launches_of_their_own_do(tmp_path: Path) -> None:
    """Depths 1 and 3 of the demo's drafter agree within 3 %; one launch instead of two."""
    request = TuneRequest(
        model=str(demo.model_path()),
        prompts=str(demo.prompts_path()),
        drafts=(("STANDALONE", str(demo.draft_path())),),
        algorithms=("STANDALONE",),
        space="steps=1,3 topk=1 tokens=8",
        concurrencies=(4,),
        requests_per_pass=4,
        max_new_tokens=20,
        device="cpu",
        # In bfloat16 near-ties would part the answers of two launches.
        dtype="float32",
        mem_fraction_static=0.2,
    )
    prepared = prepare(request, Silent().note)
    found: dict[bool, list[Seen]] = {}
    for sweep in (True, False):
        request = replace(prepared.request, depth_sweep=sweep)
        arms = Arms(replace(prepared, request=request), tmp_path, Silent())
        try:
            measured = [arms.measure(config) for config in sorted(prepared.candidates)]
        finally:
            arms.close()
        assert [item.config.num_steps for item in measured] == [1, 3]
        assert sum(item.launch_s > 0 for item in measured) == (1 if sweep else 2)
        assert all((item.launched is not None) == sweep for item in measured)
        found[sweep] = [seen_of(item) for item in measured]
    for shared, apart in zip(found[True], found[False], strict=True):
        assert shared.accept_length == pytest.approx(apart.accept_length, rel=0.03)
