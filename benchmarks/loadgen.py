"""The load generator against SGLang's own ``bench_serving``, on the same server.

A small server in a process of its own streams SGLang's answers, already made: every ``--step-ms`` a
chunk of tokens for each running request, as a batch of a real engine does, only faster, so that at
a high concurrency the client is what limits. Both clients stay up, each in a process of its own,
and take turns with the same prompts, the same number of tokens and the same concurrency; at any
time only one of them works. Server and clients are pinned to different cores.

What is compared is the serving part alone. Requests/s of ``bench_serving`` are its own figure.
CPU time is the client process's, from the moment it begins to send (``get_request``) until all
answers are in (when it asks for ``/server_info``); imports, data sets, warm-up, tokenizers and
figures are outside. It runs in its streaming mode with its progress bar off. For autospec it is the
CPU time around ``run_load``, records made, with the refusal of a busy client lifted: here the
client is what is measured.

Figures are medians over the repeats, ratios are of the two runs of one repeat, autospec first.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from autospec.engine.client import EngineClient
from autospec.measure import load
from autospec.measurement import Request

OURS, THEIRS = "autospec", "bench_serving"
PROMPT_TOKENS, CHUNKS, CHUNK_TOKENS = 128, 16, 4
#: Requests of one run, by concurrency: about two seconds each.
REQUESTS = {1: 50, 32: 1000, 256: 2560}


def prompts(count: int, seed: int) -> list[list[int]]:
    """Token ids of prompts that share nothing."""
    draw = random.Random(seed)  # noqa: S311 - reproducible load, not a secret
    return [[draw.randrange(32000) for _ in range(PROMPT_TOKENS)] for _ in range(count)]


class Stream(asyncio.Protocol):
    """One connection of the server: POST /generate streams the answer, a chunk a step."""

    running: list[Stream] = []  # noqa: RUF012 - shared by all connections on purpose

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = chunks
        self._buffer = b""
        self._next = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where to write."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Start the answer once head and body are complete."""
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if not end or len(body) < int(length or 0):
            return
        self._buffer, self._next = b"", 0
        self.running.append(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's protocol
        """Forget a request whose client went away."""
        if self in self.running:
            self.running.remove(self)

    def step(self) -> bool:
        """Send the next chunk; whether there are more."""
        self._transport.write(self._chunks[self._next])
        self._next += 1
        return self._next < len(self._chunks)


def answer() -> list[bytes]:
    """What the server writes for one request, a piece a step, chunked as uvicorn does."""
    total = CHUNKS * CHUNK_TOKENS
    pieces = []
    for sent in range(CHUNK_TOKENS, total + 1, CHUNK_TOKENS):
        meta = {
            "id": "0123456789abcdef0123456789abcdef",
            "finish_reason": {"type": "length", "length": total} if sent == total else None,
            "prompt_tokens": PROMPT_TOKENS,
            "weight_version": "default",
            "total_retractions": 0,
            "completion_tokens": sent,
            "cached_tokens": 0,
            "e2e_latency": 0.25,
        }
        data = {
            "text": " word" * sent,
            "output_ids": list(range(10000, 10000 + sent)),
            "meta_info": meta,
        }
        event = b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"
        pieces.append(b"%x\r\n%b\r\n" % (len(event), event))
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    pieces[0] = head + pieces[0]
    pieces[-1] += b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
    return pieces


async def serve(step_s: float) -> None:
    """Serve for ever; a late step is made up for by the next ones. The port goes to stdout."""
    loop = asyncio.get_running_loop()
    chunks = answer()
    loop.add_reader(sys.stdin, sys.exit)  # Its end is the end of whoever started this process.
    server = await loop.create_server(lambda: Stream(chunks), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    due_s = loop.time()
    while True:
        due_s = max(due_s + step_s, loop.time() - step_s)
        await asyncio.sleep(max(0.0, due_s - loop.time()))
        Stream.running[:] = [stream for stream in Stream.running if stream.step()]


async def run_ours(url: str, count: int, concurrency: int, seed: int) -> tuple[float, float]:
    """(duration, CPU time) in s of one run of autospec's load generator."""
    tokens = CHUNKS * CHUNK_TOKENS
    requests = [Request(n, tuple(ids), tokens) for n, ids in enumerate(prompts(count, seed))]
    async with EngineClient(url) as client:
        await load.run_load(client.generate, requests[:1], load.ClosedLoop(1))
        begin_cpu_s = time.process_time()
        done = await load.run_load(client.generate, requests, load.ClosedLoop(concurrency))
        cpu_s = time.process_time() - begin_cpu_s
    if done.losses or any(record.completion_tokens != tokens for record in done.records):
        raise SystemExit(f"{OURS}: {done.losses or 'answers of another length'}")
    return done.duration_s, cpu_s


class _EndOfLoadError(Exception):
    """Raised instead of making figures, which are no part of the load."""


class _Marks:
    """Takes the place of what ``bench_serving`` calls just before and just after its load."""

    def __init__(self, serving: Any) -> None:
        self._get_request = serving.get_request
        self.begin_cpu_s = self.end_cpu_s = self.duration_s = 0.0
        self.outputs: Sequence[Any] = ()

    def get_request(self, *args: Any, **kwargs: Any) -> Any:
        self.begin_cpu_s = time.process_time()
        return self._get_request(*args, **kwargs)

    def get(self, *_: Any, **__: Any) -> Any:
        self.end_cpu_s = time.process_time()
        return argparse.Namespace(status_code=0)

    def calculate_metrics(self, *, outputs: Sequence[Any], dur_s: float, **_: Any) -> Any:
        self.outputs, self.duration_s = outputs, dur_s
        raise _EndOfLoadError


def run_theirs(url: str, count: int, concurrency: int, seed: int) -> tuple[float, float]:
    """(duration, CPU time) in s of one run of ``bench_serving``."""
    from sglang.benchmark import serving  # noqa: PLC0415 - heavy, and only this child needs it
    from sglang.benchmark.datasets.common import DatasetRow  # noqa: PLC0415 - as above

    tokens = CHUNKS * CHUNK_TOKENS
    options = {
        "dataset_name": "random-ids", "temperature": 0.0, "top_p": 1.0, "disable_ignore_eos": False,
        "disable_stream": False, "return_logprob": False, "return_routed_experts": False,
        "logprob_start_len": -1, "top_logprobs_num": 0, "token_ids_logprob": None,
        "cache_report": False, "warmup_requests": 1, "plot_throughput": False, "header": None,
        "goodput": None,
    }  # fmt: skip
    serving.set_global_args(argparse.Namespace(**options))
    real = {
        name: getattr(serving, name) for name in ("get_request", "requests", "calculate_metrics")
    }
    marks = _Marks(serving)
    serving.get_request, serving.requests = marks.get_request, marks
    serving.calculate_metrics = marks.calculate_metrics
    work = serving.benchmark(
        backend="sglang", api_url=f"{url}/generate", base_url=url, model_id="none", tokenizer=None,
        input_requests=[DatasetRow(ids, PROMPT_TOKENS, tokens) for ids in prompts(count, seed)],
        request_rate=float("inf"), max_concurrency=concurrency, disable_tqdm=True, lora_names=[],
        lora_request_distribution=None, lora_zipf_alpha=None, extra_request_body={}, profile=False,
    )  # fmt: skip
    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(_EndOfLoadError):
        asyncio.run(work)
    for name, value in real.items():
        setattr(serving, name, value)
    if not all(output.success and output.output_len == tokens for output in marks.outputs):
        raise SystemExit(f"{THEIRS}: answers lost or of another length")
    return marks.duration_s, marks.end_cpu_s - marks.begin_cpu_s


def work(arm: str, url: str) -> None:
    """A client process: each line of stdin asks for a run, each line of stdout is its result."""
    load.MOST_BUSY_SHARE = 1.0  # type: ignore[misc] # the client is what is measured here
    for line in sys.stdin:
        count, concurrency, seed = json.loads(line)
        if arm == OURS:
            result = asyncio.run(run_ours(url, count, concurrency, seed))
        else:
            result = run_theirs(url, count, concurrency, seed)
        print(json.dumps(result), flush=True)


@contextlib.contextmanager
def child(core: int, *args: str) -> Iterator[subprocess.Popen[str]]:
    """This file as a program in another process, on one core."""
    process = subprocess.Popen(  # noqa: S603 - this very file
        [sys.executable, __file__, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    os.sched_setaffinity(process.pid, {core})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def read(process: subprocess.Popen[str]) -> Any:
    """The next line of a child."""
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        raise SystemExit(f"{process.args!r}: ended without a result")
    return json.loads(line)


def ask(process: subprocess.Popen[str], *question: int) -> Any:
    """The answer of a child to a line."""
    if process.stdin:
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
    return read(process)


def cpu_s(process: subprocess.Popen[str]) -> float:
    """CPU time of a process so far, in s."""
    with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:  # noqa: PTH123 - not a file
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(
    clients: Mapping[str, subprocess.Popen[str]],
    server: subprocess.Popen[str],
    levels: Sequence[int],
    repeats: int,
) -> list[dict[str, Any]]:
    """All runs, in the order made: every repeat goes round all levels, its clients A B or B A."""
    rows: list[dict[str, Any]] = []
    for repeat in range(
        -1, repeats
    ):  # The first, with everything still to be compiled, is dropped.
        for concurrency in levels:
            count = REQUESTS.get(concurrency, max(50, 10 * concurrency))
            order = list(clients) if repeat % 2 else list(clients)[::-1]
            for arm in order:
                begin_s = cpu_s(server)
                duration_s, used_s = ask(clients[arm], count, concurrency, repeat + 1)
                row = {
                    "arm": arm, "concurrency": concurrency, "repeat": repeat, "requests": count,
                    "requests_per_s": count / duration_s, "cpu_ms": used_s / count * 1000,
                    "busy_share": used_s / duration_s,
                    "server_busy_share": (cpu_s(server) - begin_s) / duration_s,
                }  # fmt: skip
                rows.append(row)
    return [row for row in rows if row["repeat"] >= 0]


def summarize(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row a level: medians of both clients, and the median and range of their ratios."""
    table = []
    for concurrency in dict.fromkeys(row["concurrency"] for row in rows):
        line: dict[str, Any] = {"concurrency": concurrency}
        for figure in ("requests_per_s", "cpu_ms", "busy_share", "server_busy_share"):
            values = {
                arm: [r[figure] for r in rows if (r["arm"], r["concurrency"]) == (arm, concurrency)]
                for arm in (OURS, THEIRS)
            }
            line[figure] = {arm: statistics.median(found) for arm, found in values.items()}
            ratios = [a / b for a, b in zip(values[OURS], values[THEIRS], strict=True) if b]
            if figure in ("requests_per_s", "cpu_ms"):
                line[f"{figure}_ratio"] = [statistics.median(ratios), min(ratios), max(ratios)]
        table.append(line)
    return table


def show(table: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of the summary."""
    print("concurrency  client         requests/s  CPU ms/request  client busy  server busy")
    for line in table:
        for arm in (OURS, THEIRS):
            print(
                f"{line['concurrency']:11d}  {arm:13s}  {line['requests_per_s'][arm]:10.1f}"
                f"  {line['cpu_ms'][arm]:14.3f}  {line['busy_share'][arm]:11.0%}"
                f"  {line['server_busy_share'][arm]:11.0%}"
            )
        rate, cpu = line["requests_per_s_ratio"], line["cpu_ms_ratio"]
        print(
            f"             ratio          {rate[0]:.3f} ({rate[1]:.3f} to {rate[2]:.3f})"
            f"     {cpu[0]:.3f} ({cpu[1]:.3f} to {cpu[2]:.3f})"
        )


def main() -> None:
    """Run the comparison, or one of its processes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--concurrency", default="1,32,256", help="levels, separated by commas")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--step-ms", type=float, default=2.0, help="time of a server's step")
    parser.add_argument("--json", action="store_true", help="print every run and the summary")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.step_ms / 1000))
    if given.work:
        work(*given.work)
        return
    levels = [int(level) for level in given.concurrency.split(",")]
    cores = sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(child(cores[0], "--serve", "--step-ms", str(given.step_ms)))
        url = f"http://127.0.0.1:{read(server)}"
        clients = {
            arm: stack.enter_context(child(cores[-1], "--work", arm, url)) for arm in (OURS, THEIRS)
        }
        rows = run(clients, server, levels, given.repeats)
    table = summarize(rows)
    if given.json:
        print(json.dumps({"cores": cores, "runs": rows, "summary": table}, indent=1))
    else:
        show(table)


if __name__ == "__main__":
    main()
