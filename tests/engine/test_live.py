"""What a real server said of the moment, and what it could say wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autospec.engine import live, wire
from autospec.errors import WireError

PAYLOADS = Path(__file__).parent / "payloads"


def test_a_real_servers_load_is_read() -> None:
    """Requests, the server's own rate, and the counters that ``wire`` reads."""
    payload = (PAYLOADS / "loads_ngram.json").read_bytes()
    moments = wire.read_decode_moments(payload)
    assert live.read_loads(payload) == live.Loads(0, 0, 0.0, moments)


def test_ranks_add_up() -> None:
    """A data-parallel server is one server."""
    one = {"num_running_reqs": 2, "num_waiting_reqs": 1, "gen_throughput": 10.5}
    payload = json.dumps({"loads": [one, one]}).encode()
    assert live.read_loads(payload) == live.Loads(4, 2, 21.0, None)


@pytest.mark.parametrize(
    "load",
    [
        {},
        {"num_running_reqs": 1, "num_waiting_reqs": 0},
        {"num_running_reqs": "1", "num_waiting_reqs": 0, "gen_throughput": 1.0},
        {"num_running_reqs": 1, "num_waiting_reqs": 0, "gen_throughput": None},
    ],
)
def test_an_answer_without_what_is_promised_is_refused(load: dict[str, object]) -> None:
    """Another version, or no SGLang at all."""
    with pytest.raises(WireError, match="/v1/loads"):
        live.read_loads(json.dumps({"loads": [load]}).encode())


def test_decode_tokens_are_summed_over_ranks_and_other_counts_left_out() -> None:
    """A page as SGLang writes it."""
    name = "sglang:realtime_tokens_total"
    page = (
        f"# HELP {name} Total number of tokens processed\n# TYPE {name} counter\n"
        f'{name}{{engine_type="unified",mode="decode",tp_rank="0"}} 1500.0\n'
        f'{name}{{engine_type="unified",mode="decode",tp_rank="1"}} 2e+03\n'
        f'{name}{{engine_type="unified",mode="prefill_compute",tp_rank="0"}} 9.0\n'
    )
    assert live.read_decode_tokens(page) == 3500.0
    assert live.read_decode_tokens("# nothing\n") is None


def test_the_depth_of_the_moment_is_read() -> None:
    """Beside the one at start-up, which stays."""
    data = json.loads((PAYLOADS / "server_info_plain.json").read_text())
    assert wire.read_server_info(json.dumps(data).encode()).num_steps is None
    data["speculative_num_steps"], data["internal_states"][0]["speculative_num_steps"] = 3, 0
    info = wire.read_server_info(json.dumps(data).encode())
    assert (info.num_steps, info.resolved["speculative_num_steps"]) == (0, 3)
