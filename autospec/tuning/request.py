"""What the user asked for: one frozen object, stored in the study so that it can be resumed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from autospec import schema
from autospec.errors import ConfigError, SchemaError, StudyError

__all__ = ["TuneRequest"]

#: Twice as many are the pairs of one round of the confirmation.
_MOST_REPEATS: Final = 50


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """Everything a study depends on; the command line's defaults are read from here.

    Attributes:
        model: folder or repository of the target.
        prompts: path of the prompt file.
        drafts: (algorithm, draft model) pairs.
        algorithms: methods to search; empty for NGRAM and every method with a draft.
        space: the user's narrowing of the space, in words.
        corpus: n-gram corpus that NGRAM is tried with: a file, or ``answers`` to build one from
            plain decoding's answers to a third of the search prompts, which are then not measured.
        corpus_path: where that file stands; named when the study begins.
        concurrencies: loads to measure, as requests in flight.
        objective: what to make as large as possible: a name of ``tune.objective.OBJECTIVES``.
        slo: the limits of ``goodput``, as ``Slo.parse`` reads them.
        sampler: how candidates are chosen.
        seed: of the split, the sampler and the server.
        repeats: passes at each load; at least 3.
        requests_per_pass: prompts a pass sends; None for the whole part.
        racing: whether a candidate that is clearly behind is stopped early.
        depth_sweep: whether depths of a chain share a launch where the server can switch them.
        finalists: candidates that the confirmation takes on at most: the best, and those that the
            search could not tell from it.
        confirm_rounds: rounds of the confirmation at most; each is a launch for each finalist and
            two for plain decoding.
        lossless_prompts: held-out prompts whose greedy answers are compared, if there are as many.
        allow_lossy: deploy a faster configuration though its greedy answers differ.
        max_new_tokens: longest answer where the prompt file sets none.
        temperature: sampling temperature.
        device: ``cuda``, ``cpu``, ...; None to look.
        dtype: of weights and computing, as SGLang names it.
        tp_size: GPUs the target is spread over.
        max_running_requests: admission limit of every arm; None for the larger of 48 (SGLang's own
            under speculation) and the highest concurrency.
        mem_fraction_static: share of memory of every arm; None for a default by device.
        context_length: longest prompt and answer; None for the model's own.
        max_total_tokens: KV cache size of every arm in tokens; None to derive it from the memory.
        attention_backend: of every arm; None for each arm's own best.
        page_size: tokens a page of the KV cache in every arm; None for each arm's own best.
        launch_timeout_s: how long a server may take to be ready.
        stall_timeout_s: longest time without a byte from the server before a request counts as
            lost.
        extra: SGLang flags passed through to every arm.
        budget_s: wall time over all sessions; None for no limit.
        max_trials: candidates to measure, plain decoding not counted; None for no limit.
        output: where the profile goes.
        bound_to: what must be the same when the study is resumed: digests and versions.
    """

    model: str
    prompts: str
    drafts: tuple[tuple[str, str], ...] = ()
    algorithms: tuple[str, ...] = ()
    space: str = ""
    corpus: str = ""
    corpus_path: str = ""
    concurrencies: tuple[int, ...] = (1, 8, 32)
    objective: str = "throughput"
    slo: str = ""
    sampler: str = "structured"
    seed: int = 0
    repeats: int = 3
    requests_per_pass: int | None = None
    racing: bool = True
    depth_sweep: bool = True
    finalists: int = 2
    confirm_rounds: int = 3
    lossless_prompts: int = 32
    allow_lossy: bool = False
    max_new_tokens: int = 256
    temperature: float = 0.0
    device: str | None = None
    dtype: str = "auto"
    tp_size: int = 1
    max_running_requests: int | None = None
    mem_fraction_static: float | None = None
    context_length: int | None = None
    max_total_tokens: int | None = None
    attention_backend: str | None = None
    page_size: int | None = None
    launch_timeout_s: float = 600.0
    stall_timeout_s: float = 120.0
    extra: tuple[str, ...] = ()
    budget_s: float | None = None
    max_trials: int | None = None
    output: str = "profile.yaml"
    bound_to: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 3 <= self.repeats <= _MOST_REPEATS:
            raise ConfigError(
                f"repeats is {self.repeats}, must be at least 3 to show a spread and at most "
                f"{_MOST_REPEATS}"
            )
        if not self.concurrencies or min(self.concurrencies) < 1:
            raise ConfigError(f"concurrency is {self.concurrencies}, must be numbers from 1")
        for name in ("requests_per_pass", "finalists", "confirm_rounds", "lossless_prompts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name.replace('_', ' ')} is {value}, must be at least 1")
        if self.mem_fraction_static is not None and not 0 < self.mem_fraction_static < 1:
            raise ConfigError(
                f"memory fraction is {self.mem_fraction_static}, must be between 0 and 1"
            )
        limit = self.max_running_requests
        if limit is not None and limit < max(self.concurrencies):
            raise ConfigError(
                f"max running requests is {limit}, must be at least the highest concurrency "
                f"({max(self.concurrencies)}): less would measure the queue"
            )

    @classmethod
    def from_study(cls, stored: object, where: str) -> TuneRequest:
        """Read the request that a study was created with.

        Raises:
            StudyError: it was written by another command or cannot be read.
        """
        try:
            return schema.load(cls, stored, where)
        except SchemaError as error:
            raise StudyError(f"{where}: not a study of autospec tune ({error})") from error
