"""Workers that cannot be switched: the plugin looks on, and says so.

Loaded in scheduler processes only.
"""

from __future__ import annotations

from typing import Any

from autospec.plugin.engine import start

__all__ = ["observed"]


def observed(worker: type[Any]) -> type[Any]:
    """A worker's kind that lets the plugin see what its drafts were worth."""
    base: Any = worker

    class Observed(base):  # type: ignore[misc]  # SGLang has no types here
        """A worker of SGLang's that is watched."""

        def __init__(self, server_args: Any, *args: Any, **kwargs: Any) -> None:
            super().__init__(server_args, *args, **kwargs)
            self.steering = start(server_args, obstacle=f"{worker.__name__} has no switch")

        def forward_batch_generation(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
            if batch.forward_mode.is_decode():
                self.steering.choose(len(batch.reqs))
            return super().forward_batch_generation(batch, *args, **kwargs)

        def on_verify_complete_cpu(
            self, num_correct_drafts_per_req: list[int], batch_size: int = 0
        ) -> None:
            super().on_verify_complete_cpu(num_correct_drafts_per_req, batch_size=batch_size)
            self.steering.learn(num_correct_drafts_per_req)

    Observed.__name__ = Observed.__qualname__ = worker.__name__
    return Observed
