"""Plain decoding of SGLang on this package's CPU kernels, over transformers' ``generate``.

All arms stay up and are measured in turn, with the same prompts, the same number of output tokens
and the same settings of threads and memory, so that what else the machine does falls on all of them
alike. Each pass includes the prefill. The figure is output tokens per second; ratios are of passes
of one round.

``--prototype FOLDER`` measures the ``sgl_kernel`` package in that folder beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from autospec import demo
from autospec.engine import cpu, wire
from autospec.engine.server import ServerProcess
from autospec.measurement import Request

#: Settings of threads and memory that every arm gets, transformers too.
SHARED = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "GLIBC_TUNABLES")
OURS, PROTOTYPE, TRANSFORMERS = "autospec", "prototype", "transformers"
QUESTIONS = (
    "Write a short story about a robot that learns to paint.",
    "Explain how plants turn light into sugar, to a child.",
    "List ten prime numbers and say for each why it is prime.",
    "Give me a recipe for pancakes with exact amounts and every step.",
    "Describe five animals that live in the sea.",
    "Tell me what happens in Romeo and Juliet, act by act.",
    "Write a letter to a friend about a walk in the mountains.",
    "Explain why the sky is blue and why sunsets are red.",
)


class Arm(Protocol):
    """Something that makes output tokens."""

    def run(self, prompts: Sequence[tuple[int, ...]], tokens: int) -> None:
        """Generate exactly this many tokens for each prompt, all at once."""


class ServerArm:
    """An SGLang server."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server

    def run(self, prompts: Sequence[tuple[int, ...]], tokens: int) -> None:
        """Send all prompts at once, to an empty prefix cache, and wait for all answers."""
        with ThreadPoolExecutor(len(prompts)) as pool:
            list(pool.map(lambda prompt: self._generate(prompt, tokens), prompts))

    def flush(self) -> None:
        """Forget the prompts sent so far."""
        self._post("/flush_cache?timeout=30", {})

    def _generate(self, prompt: tuple[int, ...], tokens: int) -> None:
        body = wire.generate_body(Request(0, prompt, tokens), stream=False)
        body["sampling_params"]["ignore_eos"] = True
        made = wire.read_reply(self._post(wire.GENERATE, body)).completion_tokens
        if made != tokens:
            raise SystemExit(f"{self._server.url} made {made} tokens instead of {tokens}")

    def _post(self, path: str, body: Mapping[str, Any]) -> bytes:
        request = urllib.request.Request(  # noqa: S310 - a loopback address of our own server
            self._server.url + path,
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=600) as answer:  # noqa: S310 - as above
            content: bytes = answer.read()
        return content


class TransformersArm:
    """transformers' ``generate`` in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._expect("ready")

    def run(self, prompts: Sequence[tuple[int, ...]], tokens: int) -> None:
        """Generate for all prompts as one batch, padded on the left."""
        if self._process.stdin is None:
            raise SystemExit("the transformers process has no input")
        self._process.stdin.write(json.dumps({"prompts": prompts, "tokens": tokens}) + "\n")
        self._process.stdin.flush()
        self._expect("done")

    def _expect(self, word: str) -> None:
        line = "" if self._process.stdout is None else self._process.stdout.readline()
        if line.strip() != word:
            raise SystemExit(f"the transformers process ended: {self._process.wait(timeout=10)}")


def transformers_worker(model_path: str, threads: int) -> None:
    """Read batches from standard input, answer each with ``done``."""
    import torch  # noqa: PLC0415 - only the worker needs it
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 - as above

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.bfloat16).eval()
    print("ready", flush=True)
    for line in sys.stdin:
        batch = json.loads(line)
        longest = max(len(prompt) for prompt in batch["prompts"])
        padded = [[0] * (longest - len(p)) + p for p in batch["prompts"]]
        mask = [[0] * (longest - len(p)) + [1] * len(p) for p in batch["prompts"]]
        with torch.inference_mode():
            model.generate(
                torch.tensor(padded),
                attention_mask=torch.tensor(mask),
                max_new_tokens=batch["tokens"],
                min_new_tokens=batch["tokens"],
                do_sample=False,
                pad_token_id=0,
            )
        print("done", flush=True)


def server(model: Path, environment: Mapping[str, str], log: Path) -> ServerProcess:
    """A plain server; waiting servers must not take a core from the arm that is measured."""
    settings = {
        "model_path": str(model),
        "device": "cpu",
        "max_running_requests": 16,
        "max_total_tokens": 16384,
        "mem_fraction_static": 0.3,
        "sleep_on_idle": True,
        "skip_server_warmup": True,
    }
    return ServerProcess(settings, environment=environment, log_path=log)


@contextlib.contextmanager
def transformers_process(model: Path, environment: Mapping[str, str]) -> Iterator[TransformersArm]:
    """The worker of this file, ended on leaving."""
    threads = environment["OMP_NUM_THREADS"]
    process = subprocess.Popen(  # noqa: S603 - this file, by this interpreter
        [sys.executable, __file__, "--worker", str(model), "--threads", threads],
        env={**os.environ, **{k: v for k, v in environment.items() if k in SHARED}},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield TransformersArm(process)
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def all_arms(options: argparse.Namespace) -> Iterator[dict[str, Arm]]:
    """Start every arm, end them all on leaving."""
    model = options.model or demo.model_path(print)
    environment = {**cpu.environment(), "OMP_NUM_THREADS": str(options.threads)}
    with contextlib.ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cpu-engine-")))
        arms: dict[str, Arm] = {}
        environments = {OURS: environment}
        if options.prototype is not None:
            path = os.pathsep.join([str(options.prototype), environment["PYTHONPATH"]])
            # The prototype reads its number of threads from a variable of its own, 1 by default.
            environments[PROTOTYPE] = {**environment, "PYTHONPATH": path}
        for name, variables in environments.items():
            arms[name] = ServerArm(
                stack.enter_context(server(model, variables, logs / f"{name}.log"))
            )
        arms[TRANSFORMERS] = stack.enter_context(transformers_process(model, environment))
        yield arms


def measure(
    arms: Mapping[str, Arm], prompts: Sequence[tuple[int, ...]], options: argparse.Namespace
) -> dict[int, dict[str, list[float]]]:
    """Output tokens per second by batch and arm, one value for each round."""
    rates: dict[int, dict[str, list[float]]] = {
        batch: {name: [] for name in arms} for batch in options.batches
    }
    for round_number in range(options.repeats + 1):  # the first round warms up
        for batch in options.batches:
            names = list(arms)
            # Each arm stands at each place in turn.
            shift = round_number % len(names)
            for name in names[shift:] + names[:shift]:
                rate = timed(arms[name], prompts[:batch], options.tokens)
                if round_number:
                    rates[batch][name].append(rate)
    return rates


def timed(arm: Arm, prompts: Sequence[tuple[int, ...]], tokens: int) -> float:
    """Output tokens per second of one pass."""
    if isinstance(arm, ServerArm):
        arm.flush()
    start = time.perf_counter()
    arm.run(prompts, tokens)
    return len(prompts) * tokens / (time.perf_counter() - start)


def tokenized(model: Path, batch: int) -> list[tuple[int, ...]]:
    """As many chat prompts as the largest batch needs."""
    from transformers import AutoTokenizer  # noqa: PLC0415 - slow to import

    tokenizer = AutoTokenizer.from_pretrained(model)
    return [
        tuple(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": QUESTIONS[i % len(QUESTIONS)]}],
                add_generation_prompt=True,
                return_dict=False,
            )
        )
        for i in range(batch)
    ]


def show(rates: Mapping[int, Mapping[str, Sequence[float]]]) -> None:
    """Print rates and ratios: median, and the lowest and highest of the rounds."""
    for batch, by_arm in rates.items():
        print(f"\nbatch {batch:<17} tokens/s")
        for name, values in by_arm.items():
            print(f"  {name:<20} {spread(values, 1)}")
        for name, values in by_arm.items():
            if name != OURS:
                pairs = zip(by_arm[OURS], values, strict=True)
                ratios = [mine / other for mine, other in pairs]
                print(f"  {OURS} / {name:<9} {spread(ratios, 2)}")


def spread(values: Sequence[float], digits: int) -> str:
    """Median, lowest and highest."""
    middle = statistics.median(values)
    return f"{middle:8.{digits}f}  ({min(values):.{digits}f} to {max(values):.{digits}f})"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, help="converted model; the demo model by default")
    parser.add_argument("--prototype", type=Path, help="folder with an sgl_kernel package")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--tokens", type=int, default=64, help="output tokens of each request")
    parser.add_argument("--repeats", type=int, default=3, help="rounds, at least 3")
    parser.add_argument("--threads", type=int, default=cpu.physical_cores())
    parser.add_argument("--json", type=Path, help="also write all values to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.repeats < 3:
        parser.error(f"--repeats is {options.repeats}, must be at least 3")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = parse(arguments)
    if options.worker:
        transformers_worker(options.worker, options.threads)
        return
    options.model = options.model or demo.model_path(print)
    prompts = tokenized(options.model, max(options.batches))
    with all_arms(options) as arms:
        rates = measure(arms, prompts, options)
    print(f"{options.threads} threads, {options.tokens} tokens each, {options.repeats} rounds")
    show(rates)
    if options.json:
        options.json.write_text(json.dumps(rates, indent=1) + "\n")


if __name__ == "__main__":
    main()
