"""Policies for tests, given to a server as ``module:Class``."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autospec.control.policy import Decision, Observation, Setting


class Forced:
    """Another depth every few steps, in an order that looks random and is always the same."""

    @dataclass(frozen=True, slots=True)
    class Parameters:
        """``every``: steps that a depth stays, at most; ``depths``: to be made ready."""

        every: int = 5
        depths: tuple[int, ...] | None = None

    def __init__(self, setting: Setting, parameters: Parameters) -> None:
        self._depths = setting.depths
        self._every = parameters.every
        self._state = 12345
        self._left = 0
        self._said = Decision(setting.deepest, "begins")

    def decide(self, observation: Observation) -> Decision:
        """Say the same for a while."""
        if self._left == 0:
            self._state = (1103515245 * self._state + 12345) % 2**31
            self._left = 1 + (self._state >> 8) % self._every
            depth = self._depths[(self._state >> 16) % len(self._depths)]
            self._said = Decision(depth, "forced")
        self._left -= 1
        return self._said


class Watched(Forced):
    """Also keeps in a file how often the target model ran, by kind of pass and tokens a request."""

    @dataclass(frozen=True, slots=True)
    class Parameters(Forced.Parameters):
        """``passes``: the file, JSON."""

        passes: str = ""

    def __init__(self, setting: Setting, parameters: Parameters) -> None:
        super().__init__(setting, parameters)
        runner = importlib.import_module("sglang.srt.model_executor.model_runner").ModelRunner
        forward, counts = runner._forward_raw, Counter[str]()

        def counted(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.is_draft_worker:
                width = getattr(batch.spec_info, "draft_token_num", 1)
                counts[f"{batch.forward_mode.name} {width}"] += 1
                Path(parameters.passes).write_text(json.dumps(counts), encoding="utf-8")
            return forward(self, batch, *args, **kwargs)

        runner._forward_raw = counted


class Plain(Forced):
    """Plain decoding; what it saw of shadow drafts goes to a file."""

    @dataclass(frozen=True, slots=True)
    class Parameters(Forced.Parameters):
        """``seen``: the file, a JSON list."""

        seen: str = ""

    def __init__(self, setting: Setting, parameters: Parameters) -> None:
        super().__init__(setting, parameters)
        self._seen, self._file = list[int](), Path(parameters.seen)

    def decide(self, observation: Observation) -> Decision:
        """Depth 0."""
        self._seen += observation.shadow
        self._file.write_text(json.dumps(self._seen), encoding="utf-8")
        return Decision(0, "plain")


class Failing(Forced):
    """Works for a while, then raises."""

    def decide(self, observation: Observation) -> Decision:
        """Raise at the twentieth step."""
        self._calls = getattr(self, "_calls", 0) + 1
        if self._calls >= 20:
            raise RuntimeError("a fault in a user's policy")
        return super().decide(observation)


class Lost(Forced):
    """Asks for depths that no server has."""

    def decide(self, observation: Observation) -> Decision:
        """Ask for what there is not."""
        return Decision(7 + 90 * (self._state % 2), "lost")


class Unready(Forced):
    """In whose server depth 1 cannot be made ready, as where memory is short."""

    def __init__(self, setting: Setting, parameters: Forced.Parameters) -> None:
        super().__init__(setting, parameters)
        eagle = importlib.import_module("autospec.plugin.eagle")
        ready = eagle._Steered._state_at

        def unready(worker: Any, depth: int) -> Any:
            if depth == 1:
                raise MemoryError("no room for depth 1")
            return ready(worker, depth)

        eagle._Steered._state_at = unready


class Shadowless(Forced):
    """In whose server no shadow draft comes to anything."""

    def __init__(self, setting: Setting, parameters: Forced.Parameters) -> None:
        super().__init__(setting, parameters)
        shadows = importlib.import_module("autospec.plugin.shadow").Shadows

        def follow(*_: Any) -> Any:
            raise MemoryError("no room for a draft")

        shadows.follow = follow
