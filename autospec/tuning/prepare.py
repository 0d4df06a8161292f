"""Everything that can be known, refused or planned before the first server is launched."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from autospec.config import SpecConfig
from autospec.engine import cpu
from autospec.engine.args import Deployment, server_args, to_argv
from autospec.engine.capabilities import Platform, detect, require_sglang
from autospec.engine.constraints import violations
from autospec.engine.models import ModelInfo, check_draft, count_tokens, read_model
from autospec.engine.offline import validate
from autospec.errors import ConfigError, StudyError, WorkloadError
from autospec.evidence import Environment
from autospec.measure.split import Parts, set_aside, split
from autospec.measure.workload import Workload, read_workload
from autospec.measurement import Sampling
from autospec.tune.budget import Cost
from autospec.tune.space import SearchSpace, enumerate_space, parse_space
from autospec.tuning.corpus import ANSWERS, SHARE, check_corpus, corpus_beside
from autospec.tuning.costs import assumed_cost
from autospec.tuning.request import TuneRequest

__all__ = [
    "Prepared",
    "admission_limit",
    "describe_environment",
    "memory_fraction",
    "most_finalists",
    "prepare",
    "server_environment",
]

#: SGLang's own admission limit under speculation; plain decoding would get thousands.
_LEAST_RUNNING: Final = 48
# On a CPU the weights and the cache share the host's memory with everything else.
_MEM_FRACTION: Final = {"cpu": 0.3}
_MEM_FRACTION_ELSEWHERE: Final = 0.8
_VALIDATION_TIMEOUT_S: Final = 180.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that can be run.

    Attributes:
        request: with everything that the study is bound to.
        target: the model.
        environment: this machine and engine.
        deployment: what all arms share.
        server_environment: environment variables for the server's process.
        parts: the split workload.
        candidates: configurations that may run, sorted.
        refused: configurations that may not, with the rule each breaks.
        cost: expected seconds of a trial and of the confirmation.
    """

    request: TuneRequest
    target: ModelInfo
    environment: Environment
    deployment: Deployment
    server_environment: dict[str, str]
    parts: Parts
    candidates: tuple[SpecConfig, ...]
    refused: tuple[tuple[SpecConfig, str], ...]
    cost: Cost


def prepare(request: TuneRequest, note: Callable[[str], None]) -> Prepared:
    """Read, check and split everything; nothing is launched and nothing is written.

    Args:
        request: what the user asked for.
        note: told what takes time.

    Raises:
        AutospecError: whatever the user must put right, before any time is spent.
    """
    workload = read_workload(
        Path(request.prompts) if request.prompts != "-" else "-",
        default_max_new_tokens=request.max_new_tokens,
        sampling=Sampling(temperature=request.temperature),
    )
    parts = _split(request, workload)
    request = _name_corpus(request)
    space = parse_space(
        request.space,
        SearchSpace(request.algorithms, request.drafts, corpus=request.corpus_path or None),
    )
    require_sglang()
    platform = detect(request.device)
    target = read_model(request.model)
    request, space = _name_models(request, space, target)
    _check_lengths(target, workload, request.context_length)
    deployment = _deployment(request, platform)
    listed = enumerate_space(space, partial(violations, deployment=deployment, target=target))
    environment_variables = server_environment(platform.device)
    candidates, refused = _validate(listed.candidates, deployment, environment_variables, note)
    refused = (*listed.refused, *refused)
    if not candidates:
        reason = f"; the first: {refused[0][1]}" if refused else ""
        raise ConfigError(f"no configuration of this space can run here{reason}")
    environment = describe_environment(platform, request.dtype, request.tp_size)
    return Prepared(
        request=_bind(request, workload, target, environment),
        target=target,
        environment=environment,
        deployment=deployment,
        server_environment=environment_variables,
        parts=parts,
        candidates=candidates,
        refused=refused,
        cost=assumed_cost(
            request, parts, platform.device, most_finalists(request, len(candidates))
        ),
    )


def most_finalists(request: TuneRequest, candidates: int) -> int:
    """Finalists that there can be: as many as were asked for, candidates, and trials."""
    return min(request.finalists, candidates, request.max_trials or candidates)


def server_environment(device: str) -> dict[str, str]:
    """Environment variables that a server's process for this device needs here."""
    return cpu.environment() if cpu.needed(device) else {}


def describe_environment(platform: Platform, dtype: str, tp_size: int) -> Environment:
    """This machine and engine, as a profile records them."""
    on_cpu = platform.device == "cpu"
    ours = cpu.needed(platform.device)
    return Environment(
        device=platform.device,
        accelerator=platform.accelerator,
        accelerator_count=platform.accelerator_count,
        sglang=platform.sglang_version or "none",
        dtype=dtype,
        tp_size=tp_size,
        cpu_threads=cpu.thread_count() if on_cpu else None,
        cpu_kernels=("autospec" if ours else "native") if on_cpu else None,
        torch=platform.torch_version or None,
        driver=platform.driver or None,
        python=platform.python_version,
        autospec=version("sglang-autospec"),
        cpu=None if on_cpu else platform.cpu,
        cpu_count=platform.cpu_count,
        cpu_governor=platform.cpu_governor or None,
        memory_gib=platform.memory_gib,
        os=platform.os,
        kernel=platform.kernel,
    )


def admission_limit(asked: int | None, concurrencies: Iterable[int]) -> int:
    """Requests that a server decodes at once, for every arm alike."""
    return asked or max([_LEAST_RUNNING, *concurrencies])


def memory_fraction(asked: float | None, device: str) -> float:
    """Share of the memory for weights and KV cache, for every arm alike."""
    if asked is not None:
        return asked
    return _MEM_FRACTION.get(device, _MEM_FRACTION_ELSEWHERE)


def _split(request: TuneRequest, workload: Workload) -> Parts:
    most = max(request.concurrencies)
    parts = split(workload, request.seed, max_concurrency=most)
    return set_aside(parts, SHARE, max_concurrency=most) if request.corpus == ANSWERS else parts


def _name_corpus(request: TuneRequest) -> TuneRequest:
    """Say where the corpus stands, once and for all sessions; one that was given is read."""
    if not request.corpus:
        return request
    if request.algorithms and "NGRAM" not in request.algorithms:
        raise ConfigError(f"a corpus is for NGRAM, which is not searched: {request.algorithms}")
    if request.corpus == ANSWERS:
        path = request.corpus_path or str(corpus_beside(Path(request.output)))
        return dataclasses.replace(request, corpus_path=path)
    given = Path(request.corpus_path or request.corpus).absolute()
    check_corpus(given)
    return dataclasses.replace(request, corpus_path=str(given))


def _name_models(
    request: TuneRequest, space: SearchSpace, target: ModelInfo
) -> tuple[TuneRequest, SearchSpace]:
    """Check the draft models, and name all models so that any working folder finds them."""
    drafts: list[tuple[str, str]] = []
    for algorithm, path in request.drafts:
        draft = read_model(path, role="draft model")
        check_draft(target, draft, algorithm)
        drafts.append((algorithm, draft.name))
    request = dataclasses.replace(request, model=target.name, drafts=tuple(drafts))
    return request, dataclasses.replace(space, drafts=tuple(drafts))


def _deployment(request: TuneRequest, platform: Platform) -> Deployment:
    return Deployment(
        model=request.model,
        device=platform.device,
        dtype=request.dtype,
        tp_size=request.tp_size,
        max_running_requests=admission_limit(request.max_running_requests, request.concurrencies),
        mem_fraction_static=memory_fraction(request.mem_fraction_static, platform.device),
        context_length=request.context_length,
        max_total_tokens=request.max_total_tokens,
        attention_backend=request.attention_backend,
        page_size=request.page_size,
        random_seed=request.seed,
        extra=request.extra,
    )


def _validate(
    candidates: tuple[SpecConfig, ...],
    deployment: Deployment,
    server_environment: dict[str, str],
    note: Callable[[str], None],
) -> tuple[tuple[SpecConfig, ...], tuple[tuple[SpecConfig, str], ...]]:
    """SGLang's own check of every command line, in one process of its own."""
    note(f"checking {len(candidates)} configurations with SGLang's own validation")
    reasons = validate(
        [to_argv(server_args(deployment, config)) for config in candidates],
        server_environment,
        timeout_s=_VALIDATION_TIMEOUT_S,
    )
    pairs = list(zip(candidates, reasons, strict=True))
    kept = tuple(config for config, reason in pairs if reason is None)
    return kept, tuple((config, reason) for config, reason in pairs if reason is not None)


def _check_lengths(target: ModelInfo, workload: Workload, context_length: int | None) -> None:
    """Refuse a prompt that cannot fit, where the tokenizer can be read; the server checks again."""
    limit = context_length or target.context_length
    texts = [
        prompt.text or "\n".join(m.content for m in prompt.messages or ())
        for prompt in workload.prompts
    ]
    counts = count_tokens(target, texts)
    if counts is None or limit is None:
        return
    for prompt, tokens in zip(workload.prompts, counts, strict=True):
        count = len(prompt.input_ids or ()) or tokens
        if count + prompt.max_new_tokens > limit:
            raise WorkloadError(
                f"{workload.place(prompt)}: {count} prompt tokens and {prompt.max_new_tokens} new "
                f"ones do not fit the context of {limit}"
            )


def _bind(
    request: TuneRequest, workload: Workload, target: ModelInfo, environment: Environment
) -> TuneRequest:
    """Note what the study's figures depend on, or compare with what it was begun with."""
    bound_to = {
        "prompt file": workload.fingerprint,
        "model": target.digest,
        "device": environment.device,
        "accelerator": environment.accelerator,
        "sglang": environment.sglang,
        "autospec": environment.autospec or "",
    }
    if request.corpus and request.corpus != ANSWERS:
        bound_to["corpus"] = check_corpus(Path(request.corpus_path))
    for name, begun_with in request.bound_to.items():
        if bound_to.get(name) != begun_with:
            raise StudyError(
                f"the study was begun with {name} {begun_with!r}, now it is "
                f"{bound_to.get(name)!r}; begin a new study"
            )
    return dataclasses.replace(request, bound_to=bound_to)
