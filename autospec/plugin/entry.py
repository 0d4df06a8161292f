"""What SGLang calls in each of its processes (entry point group ``sglang.srt.plugins``).

One hook, on the function that picks the class of the speculative worker: it is called in scheduler
processes only, so that the others load nothing. Without the variables of ``asked`` it is not even
set.
"""

from __future__ import annotations

import importlib
import logging
import os
from typing import Any, Final

from autospec.plugin.asked import asked_for

__all__ = ["register"]

_TARGET: Final = "sglang.srt.speculative.spec_info.SpeculativeAlgorithm.create_worker"
#: SGLang's worker -> the module here that has its steered kind, and that one's name.
_STEERED: Final = {
    "EAGLEWorkerV2": ("autospec.plugin.eagle", "SteeredEagleWorker"),
    "StandaloneWorkerV2": ("autospec.plugin.eagle", "SteeredStandaloneWorker"),
    "NGRAMWorker": ("autospec.plugin.ngram", "SteeredNgramWorker"),
}
_log = logging.getLogger(__name__)


def register() -> None:
    """Set the hook, if anything is asked for."""
    if asked_for(os.environ) is None:
        return
    hooks = importlib.import_module("sglang.srt.plugins.hook_registry")
    hooks.HookRegistry.register(_TARGET, _steered, hooks.HookType.AFTER)


def _steered(worker: type[Any], *_args: object, **_kwargs: object) -> type[Any]:
    """The worker's steered kind, or one that only observes."""
    try:
        module, name = _STEERED.get(worker.__name__, ("autospec.plugin.observer", ""))
        place = importlib.import_module(module)
        steered: type[Any] = getattr(place, name) if name else place.observed(worker)
    except Exception:  # noqa: BLE001  # the server must start whatever is wrong in here
        _log.exception("autospec: not active, the server's settings stay as they are")
        return worker
    return steered
