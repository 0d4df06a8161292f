"""Reading what a real SGLang 0.5.23 said."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from autospec.engine import redact, wire
from autospec.errors import RequestError, WireError
from autospec.measurement import DecodeMoments, Request, Sampling

PAYLOADS = Path(__file__).parent / "payloads"
ARMS = ("plain", "ngram")


def recorded(name: str) -> bytes:
    """The bytes of a recorded answer."""
    return (PAYLOADS / name).read_bytes()


def changed(name: str, **changes: Any) -> bytes:
    """A recorded answer with some keys replaced, or removed where the value is ``...``."""
    data = json.loads(recorded(name)) | changes
    return json.dumps({key: value for key, value in data.items() if value is not ...}).encode()


def changed_meta(**changes: Any) -> bytes:
    """A recorded n-gram answer with keys of its ``meta_info`` replaced or removed."""
    meta = json.loads(recorded("generate_ngram.json"))["meta_info"] | changes
    kept = {key: value for key, value in meta.items() if value is not ...}
    return changed("generate_ngram.json", meta_info=kept)


def last_event(name: str) -> bytes:
    """The last event of a recorded stream before its end mark."""
    return recorded(name).strip().split(b"\n\n")[-2].removeprefix(b"data: ")


def test_plain_reply_has_no_speculative_counts() -> None:
    """An answer of plain decoding is read, and says that nothing was verified."""
    reply = wire.read_reply(recorded("generate_plain.json"))
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == (36, 19, 0)
    assert len(reply.output_ids) == 19
    assert reply.finish_reason == "stop"
    assert reply.server_latency_s == pytest.approx(1.2985, abs=1e-4)
    assert (reply.verify_ct, reply.num_correct_drafts, reply.correct_histogram) == (None, 0, ())


def test_text_of_an_answer_is_read_and_a_missing_one_is_noticed() -> None:
    """What the recorded answer says; a server without a tokenizer sends none."""
    said = json.loads(recorded("generate_plain.json"))["text"]
    assert wire.read_text(recorded("generate_plain.json")) == said
    with pytest.raises(WireError, match="text"):
        wire.read_text(changed("generate_plain.json", text=...))


def test_speculative_reply_has_consistent_counts() -> None:
    """The histogram of a real n-gram answer adds up to its verify steps and correct drafts."""
    reply = wire.read_reply(recorded("generate_ngram.json"))
    assert reply.verify_ct == sum(reply.correct_histogram) == 15
    assert reply.num_correct_drafts == 4
    assert reply.correct_histogram == (13, 0, 2)


def test_last_stream_event_reads_like_a_whole_answer() -> None:
    """The last event of a stream carries the counts of the whole request."""
    reply = wire.read_reply(last_event("stream_ngram.txt"))
    assert (reply.verify_ct, reply.num_correct_drafts, reply.cached_tokens) == (3, 16, 35)


@pytest.mark.parametrize("arm", ARMS)
def test_one_token_answer_has_no_verify_step(arm: str) -> None:
    """An answer that ends with the token from prefill was never verified, in any arm."""
    reply = wire.read_reply(recorded(f"one_token_{arm}.json"))
    assert (reply.finish_reason, reply.completion_tokens, reply.verify_ct) == ("length", 1, None)


def test_counts_follow_from_the_histogram_when_it_comes_alone() -> None:
    """With one draft slot SGLang leaves the counters out; the histogram is enough."""
    payload = changed_meta(spec_verify_ct=..., spec_num_correct_drafts=...)
    reply = wire.read_reply(payload)
    assert (reply.verify_ct, reply.num_correct_drafts) == (15, 4)


@pytest.mark.parametrize("arm", ARMS)
def test_chunk_tokens_agrees_with_decoding_every_event(arm: str) -> None:
    """The quick count of each real event equals the one that decoding finds, and it grows."""
    events = [
        event.removeprefix(b"data: ") for event in recorded(f"stream_{arm}.txt").split(b"\n\n")[:-2]
    ]
    counts = [wire.chunk_tokens(event) for event in events]
    assert counts == [json.loads(event)["meta_info"]["completion_tokens"] for event in events]
    assert counts == sorted(set(counts))


def test_chunk_tokens_is_not_fooled_by_the_answer() -> None:
    """An answer that quotes the key does not change the count."""
    text = 'say "completion_tokens":99, or "completion_tokens": 98'
    data = {"meta_info": {"completion_tokens": 7}, "text": text}
    assert wire.chunk_tokens(json.dumps(data).encode()) == 7


def test_an_error_event_raises_with_the_servers_reason() -> None:
    """An error inside a stream is a refusal with SGLang's words."""
    stream = json.loads(recorded("errors.json"))["too_long_stream"]["text"]
    event = stream.split("\n\n")[0].removeprefix("data: ").encode()
    with pytest.raises(RequestError, match=r"input \(14400 tokens\) is longer"):
        wire.chunk_tokens(event)


def test_an_aborted_answer_is_refused() -> None:
    """An answer that the server gave up is no answer."""
    payload = changed_meta(finish_reason={"type": "abort", "message": "Abort in waiting queue"})
    with pytest.raises(RequestError, match="given up by the server: Abort in waiting queue"):
        wire.read_reply(payload)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"<html>", "/generate: 6 bytes that are not JSON"),
        (b"[]", "/generate: must be a mapping, is list"),
        (changed("generate_plain.json", meta_info=...), "/generate: key 'meta_info' is missing"),
        (changed("generate_plain.json", output_ids=["a"]), "must be a list of int numbers"),
        (changed_meta(completion_tokens=...), "meta_info: key 'completion_tokens' is missing"),
        (changed_meta(completion_tokens="9"), "completion_tokens must be int, is str"),
        (changed_meta(cached_tokens=True), "cached_tokens must be int, is bool"),
        (changed_meta(finish_reason=None), "finish_reason must be dict, is NoneType"),
        (changed_meta(spec_correct_drafts_histogram=[1.5]), "must be a list of int numbers"),
    ],
)
def test_a_reply_that_breaks_the_promise_names_the_key(payload: bytes, message: str) -> None:
    """What is missing or of another type is named, with its place."""
    with pytest.raises(WireError, match=re.escape(message)):
        wire.read_reply(payload)


def test_every_speculative_key_is_known() -> None:
    """Each ``spec_*`` key of real answers is read or ignored for a reason, never both."""
    answers = [json.loads(recorded(f"generate_{arm}.json")) for arm in ARMS]
    answers += [json.loads(last_event(f"stream_{arm}.txt")) for arm in ARMS]
    seen = {key for answer in answers for key in answer["meta_info"] if key.startswith("spec_")}
    assert len(seen) == 6
    assert seen <= wire.SPEC_KEYS_READ | wire.SPEC_KEYS_IGNORED.keys()
    assert not wire.SPEC_KEYS_READ & wire.SPEC_KEYS_IGNORED.keys()


def test_every_speculative_key_of_the_installed_sglang_is_known() -> None:
    """No ``spec_*`` key that SGLang's source writes to ``meta_info`` is unknown here."""
    found = importlib.util.find_spec("sglang")
    if found is None or found.origin is None:
        pytest.skip("needs SGLang's source")
    source = Path(found.origin).parent / "srt" / "managers" / "tokenizer_manager.py"
    keys = set(re.findall(r'meta_info\["(spec_\w+)"\]', source.read_text(encoding="utf-8")))
    assert keys == wire.SPEC_KEYS_READ | wire.SPEC_KEYS_IGNORED.keys()


@pytest.mark.parametrize("arm", ARMS)
def test_server_info_is_read(arm: str) -> None:
    """Version, capacities and resolved settings of a real server are found."""
    info = wire.read_server_info(recorded(f"server_info_{arm}.json"))
    assert info.version == "0.5.23"
    assert info.max_total_num_tokens == 20000
    assert info.max_running_requests == 16
    assert info.max_input_tokens == 8186
    assert info.kv_cache_gb == pytest.approx(0.429)
    assert info.launch_command.startswith("--model-path /models/demo --device cpu")
    assert info.resolved["page_size"] == 1
    assert info.resolved["speculative_algorithm"] == (None if arm == "plain" else "NGRAM")
    assert info.resolved["decode_cuda_graph_bs"] == ""
    assert all(isinstance(value, wire.Scalar) for value in info.resolved.values())


def test_server_info_keeps_no_secret() -> None:
    """Keys and passwords are in neither the settings nor the launch command."""
    payload = changed(
        "server_info_plain.json",
        api_key="hush-1",
        admin_api_key="hush-2",
        ssl_keyfile_password="hush-3",  # noqa: S106 -- a made-up one, to see it go
        launch_command="--api-key hush-1 --admin-api-key=hush-2 --ssl-keyfile-password hush-3 -x",
    )
    info = wire.read_server_info(payload)
    assert "hush" not in repr(info)
    assert info.launch_command.endswith("--ssl-keyfile-password *** -x")


def test_server_info_adds_up_data_parallel_ranks() -> None:
    """Each data-parallel rank admits its own requests."""
    rank = json.loads(recorded("server_info_plain.json"))["internal_states"][0]
    rank["decode_cuda_graph_bs"] = [1, 2, 4]
    info = wire.read_server_info(changed("server_info_plain.json", internal_states=[rank, rank]))
    assert info.max_running_requests == info.resolved["max_running_requests"] == 32
    assert info.resolved["decode_cuda_graph_bs"] == "1 2 4"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": ...}, "/server_info: key 'version' is missing"),
        ({"internal_states": []}, "/server_info: internal_states is empty"),
        ({"frontend": "rust"}, "/server_info: frontend is 'rust', must be 'python'"),
        ({"internal_states": [3]}, "/server_info: must be a mapping, is int"),
        ({"max_req_input_len": "8k"}, "max_req_input_len must be int, is str"),
    ],
)
def test_server_info_that_breaks_the_promise_names_the_key(
    changes: dict[str, Any], message: str
) -> None:
    """What is missing or of another type is named, with its place."""
    with pytest.raises(WireError, match=re.escape(message)):
        wire.read_server_info(changed("server_info_plain.json", **changes))


def test_model_info_is_read() -> None:
    """A real server names its model and architecture."""
    info = wire.read_model_info(recorded("model_info.json"))
    assert info == wire.ModelInfo("/models/demo", "/models/demo", "llama", ("LlamaForCausalLM",))


def test_token_ids_are_read() -> None:
    """A real server's tokens are found, for a text and for a conversation."""
    assert wire.read_token_ids(recorded("tokenize_text.json")) == (19556, 905, 28, 451, 314)
    assert len(wire.read_token_ids(recorded("tokenize_messages.json"))) == 36


def test_decode_moments_are_read() -> None:
    """All of a real server's sums are found, and the prompt tokens that it computed."""
    moments = wire.read_decode_moments(recorded("loads_ngram.json"))
    assert moments == DecodeMoments(
        num_steps=24,
        sum_batch_size=24.0,
        sum_step_us=1859675.0,
        sum_batch_size_sq=24.0,
        sum_batch_step_us=1859675.0,
        sum_tokens=46.0,
        sum_prefill_tokens=45,
    )


def test_decode_moments_add_up_over_ranks() -> None:
    """Counters of data-parallel ranks are summed."""
    one = {"decode_moments": [1, 2, 3.5, 4, 5, 6], "total_prefill_uncached_tokens": 7}
    other = one | {"num_running_reqs": 3, "num_waiting_reqs": 2}
    payload = json.dumps({"loads": [one, other]}).encode()
    assert wire.read_decode_moments(payload) == DecodeMoments(2, 4, 7, 8, 10, 12, 14, 5)


def test_prompt_tokens_that_one_rank_does_not_count_are_not_known() -> None:
    """Half a count would look like a whole one."""
    silent: dict[str, object] = {"decode_moments": [1, 2, 3, 4, 5, 6]}
    loads = [silent | {"total_prefill_uncached_tokens": 7}, silent]
    moments = wire.read_decode_moments(json.dumps({"loads": loads}).encode())
    assert moments is not None
    assert moments.sum_prefill_tokens is None


def test_decode_moments_may_be_absent_but_not_short() -> None:
    """A server without counters is None; a list of another length is an error."""
    assert wire.read_decode_moments(b'{"loads": [{"decode_moments": null}]}') is None
    with pytest.raises(WireError, match="decode_moments has 2 items, must have 6"):
        wire.read_decode_moments(b'{"loads": [{"decode_moments": [1, 2]}]}')


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("too_long", "The input (14400 tokens) is longer than the model's context length"),
        ("unknown_field", "unknown field `speculative_num_steps`, expected one of"),
        ("bad_body", "Either text, input_ids or input_embeds should be provided."),
        ("metrics", "Not Found"),
    ],
)
def test_error_text_finds_the_reason_in_every_shape(name: str, text: str) -> None:
    """Each form of error answer that SGLang has gives one short line."""
    payload = json.dumps(json.loads(recorded("errors.json"))[name]["json"]).encode()
    said = redact.error_text(payload)
    assert said.startswith(text)
    assert len(said) <= 300


def test_error_text_of_a_validation_error_leaves_the_input_out() -> None:
    """A validation error repeats what was sent; only its reasons are kept, each once."""
    payload = json.dumps(json.loads(recorded("errors.json"))["tokenize_bad"]["json"]).encode()
    said = redact.error_text(payload)
    assert said.startswith("Value error, 'role' must be one of")
    assert said.endswith("; Field required")
    assert "'input'" not in said
    assert said.count("Field required") == 1


def test_error_text_of_no_json_is_one_line() -> None:
    """A proxy's page, or nothing at all, still makes one line."""
    assert redact.error_text(b"<h1>Bad\nGateway</h1>") == "<h1>Bad Gateway</h1>"
    assert redact.error_text(b"{}") == "no reason given"


def test_bodies_say_what_is_asked() -> None:
    """Requests carry the ids, the sampling, and that the end of an answer ends it."""
    request = Request(0, (5, 6), 7, sampling=Sampling(temperature=0.5, top_p=0.9))
    assert wire.generate_body(request, stream=True) == {
        "input_ids": [5, 6],
        "sampling_params": {
            "max_new_tokens": 7,
            "temperature": 0.5,
            "top_p": 0.9,
            "ignore_eos": False,
        },
        "stream": True,
    }
    assert wire.tokenize_body(text="hi") == {"prompt": "hi"}
    assert wire.tokenize_body(messages=[]) == {"messages": []}
