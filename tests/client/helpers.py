"""What the client's tests share: servers, a profile that weighs them, and a policy that is told."""

from __future__ import annotations

from typing import Any

from openai.types.chat import ChatCompletionMessageParam

from autospec.config import PLAIN, SpecConfig
from autospec.control.policy import Decision, Observation, Want
from autospec.evidence import StepTime
from autospec.profile import Choice, Profile, Verdict
from tests.fake_sglang import FakeSGLang
from tests.test_profile import RATIO, make_profile

DEPTH = 3
EAGLE = SpecConfig("EAGLE3", num_steps=DEPTH, topk=1, num_draft_tokens=DEPTH + 1, draft_model="d")
#: Step times in ms at every batch size, so that break-even is an accept length of 1.6.
PLAIN_MS, SPECULATIVE_MS = 10.0, 16.0
MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "one two three"}]
IDS = [5, 6, 7, 8]


def eagle(faults: str = "", step_s: float = 0.0005, **settings: Any) -> FakeSGLang:
    """A speculative server whose drafts are right by the chance ``server.scheduler.skill``."""
    return FakeSGLang(
        faults, step_s, speculative_algorithm="EAGLE3", speculative_num_steps=DEPTH, **settings
    )


def plain(faults: str = "", step_s: float = 0.0005, **settings: Any) -> FakeSGLang:
    """The plain server beside it."""
    return FakeSGLang(faults, step_s, **settings)


def measured_profile() -> Profile:
    """A profile of the two."""
    base = make_profile()
    arguments: dict[str, Any] = {
        "model_path": "models/m",
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": "d",
        "speculative_num_steps": DEPTH,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": DEPTH + 1,
    }
    return make_profile(
        verdict=Verdict("faster", "it is", "confirm", EAGLE, RATIO),
        choice=Choice(EAGLE, arguments, base.choice.resolved),
        step_times=(
            StepTime(PLAIN, 4, 4.0, PLAIN_MS, 800, 1.0),
            StepTime(EAGLE, 4, 4.0, SPECULATIVE_MS, 800, 2.5),
        ),
    )


class Told:
    """A policy that says what it is told, and keeps what it was shown."""

    def __init__(self, depth: int = DEPTH) -> None:
        self.depth = depth
        self.want: Want = "settle"
        self.seen: list[Observation] = []

    def decide(self, observation: Observation) -> Decision:
        """Say it."""
        self.seen.append(observation)
        return Decision(self.depth, "it was told", self.want)
