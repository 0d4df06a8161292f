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
from tests.real_engine import MAX_TOTAL_TOKENS

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
    """Depth 1 of a server launched for depth 3 agrees within 3 % with one launched for it."""
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
        max_total_tokens=MAX_TOTAL_TOKENS,
    )
    prepared = prepare(request, Silent().note)
    shallow, deep = sorted(prepared.candidates)
    found: dict[bool, Seen] = {}
    for sweep in (True, False):
        request = replace(prepared.request, depth_sweep=sweep)
        arms = Arms(replace(prepared, request=request), tmp_path, Silent())
        try:
            measured = [
                arms.measure(config) for config in ([shallow, deep] if sweep else [shallow])
            ]
        finally:
            arms.close()
        assert sum(item.launch_s > 0 for item in measured) == 1
        assert all((item.launched is not None) == sweep for item in measured)
        found[sweep] = seen_of(measured[0])
    assert found[True].accept_length == pytest.approx(found[False].accept_length, rel=0.03)
