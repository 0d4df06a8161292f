"""The table of what SGLang accepts: each rule broken alone, and a neighbour that holds it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.config import PLAIN, SpecConfig
from autospec.engine.args import Deployment
from autospec.engine.constraints import RULES, require_valid, violations
from autospec.engine.models import ModelInfo
from autospec.engine.rules import tree_capacity
from autospec.errors import ConfigError
from tests.engine.strategies import valid_configs
from tests.strategies import spec_configs

GPU = Deployment(model="/models/big", device="cuda", max_running_requests=32)
CPU = replace(GPU, device="cpu")
TARGET = ModelInfo(
    name="/models/big",
    path=Path("/models/big"),
    architecture="LlamaForCausalLM",
    vocab_size=1000,
    context_length=4096,
    hidden_size=64,
    digest="0",
)
MTP_TARGET = replace(TARGET, architecture="DeepseekV3ForCausalLM")
DEEPSEEK_V4 = replace(TARGET, architecture="DeepseekV4ForCausalLM")
HEAD = "draft=/models/head"
TREE = f"EAGLE3 steps=3 topk=4 tokens=8 {HEAD}"
CHAIN = f"EAGLE3 steps=3 topk=1 tokens=4 {HEAD}"
LONE = f"STANDALONE steps=3 topk=4 tokens=8 {HEAD}"
FLASH = f"DFLASH block=8 {HEAD}"
SPARK = f"DSPARK block=8 {HEAD}"
UNO = f"UNO steps=4 topk=4 tokens=12 {HEAD}"


def _with(deployment: Deployment = GPU, extra: str = "", **fields: object) -> Deployment:
    return replace(deployment, extra=tuple(extra.split()), **fields)  # type: ignore[arg-type]  # names checked by replace


DP = _with(extra="--attn-dp-size 2")
DP_HEAD = _with(extra="--attn-dp-size 2 --enable-dp-lm-head")
PP = _with(extra="--pp-size 2")

Case = tuple[str, Deployment, ModelInfo | None]

#: The rule, a case that breaks it and no other, and a neighbour that breaks none.
CASES: list[tuple[str, Case, Case]] = [
    ("known-algorithm", ("FOO", GPU, None), ("PLAIN", GPU, None)),
    ("known-algorithm", ("NONE", GPU, None), ("PLAIN", GPU, None)),
    ("device", (FLASH, CPU, None), (FLASH, GPU, None)),
    ("device", (SPARK, CPU, None), (SPARK, _with(device="npu"), None)),
    ("device", (UNO, _with(device="xpu"), None), (UNO, _with(device="cuda:1"), None)),
    ("device", ("NGRAM tokens=8", _with(device="npu"), None), ("NGRAM tokens=8", CPU, None)),
    ("shape-complete", (f"EAGLE steps=3 {HEAD}", GPU, None), (f"EAGLE {HEAD}", GPU, None)),
    ("shape-complete", (f"EAGLE topk=4 tokens=8 {HEAD}", GPU, None), (TREE, GPU, None)),
    ("chain", (f"EAGLE3 steps=3 topk=1 tokens=5 {HEAD}", GPU, None), (CHAIN, GPU, None)),
    (
        "tree-bound",
        (f"EAGLE steps=3 topk=2 tokens=12 {HEAD}", GPU, None),
        (f"EAGLE steps=3 topk=2 tokens=11 {HEAD}", GPU, None),
    ),
    (
        "tokens-cover-steps",
        (f"EAGLE steps=6 topk=2 tokens=6 {HEAD}", GPU, None),
        (f"EAGLE steps=6 topk=2 tokens=7 {HEAD}", GPU, None),
    ),
    ("tokens-least", ("NGRAM tokens=1", GPU, None), ("NGRAM tokens=2", GPU, None)),
    (
        "tokens-least",
        (f"EAGLE steps=0 topk=1 tokens=1 {HEAD}", GPU, None),
        (f"EAGLE steps=1 topk=1 tokens=2 {HEAD}", GPU, None),
    ),
    ("tokens-most", ("NGRAM tokens=1025", GPU, None), ("NGRAM tokens=1024", GPU, None)),
    (
        "tree-pages",
        (TREE, _with(page_size=16, attention_backend="aiter"), None),
        (TREE, _with(page_size=16, attention_backend="triton"), None),
    ),
    (
        "tree-pages",
        ("NGRAM tokens=8", _with(page_size=16, attention_backend="triton"), None),
        ("NGRAM tokens=8 breadth=1", _with(page_size=16, attention_backend="triton"), None),
    ),
    ("tree-pages", (TREE, _with(CPU, page_size=16), None), (CHAIN, _with(CPU, page_size=16), None)),
    (
        "chain-backend",
        (TREE, _with(attention_backend="trtllm_mha"), None),
        (CHAIN, _with(attention_backend="trtllm_mha"), None),
    ),
    (
        "chain-backend",
        (TREE, _with(extra="--decode-attention-backend flashmla"), None),
        (CHAIN, _with(extra="--decode-attention-backend flashmla"), None),
    ),
    (
        "verify-backend",
        (CHAIN, _with(CPU, attention_backend="torch_native"), None),
        ("PLAIN", _with(CPU, attention_backend="torch_native"), None),
    ),
    ("standalone-draft", ("STANDALONE steps=3 topk=1 tokens=4", GPU, None), (LONE, GPU, None)),
    (
        "eagle-draft",
        ("EAGLE steps=3 topk=1 tokens=4", GPU, TARGET),
        ("EAGLE steps=3 topk=1 tokens=4", GPU, MTP_TARGET),
    ),
    (
        "int32-offsets",
        (TREE, _with(max_running_requests=2**17), TARGET),
        (TREE, _with(max_running_requests=2**17 - 1), TARGET),
    ),
    (
        "int32-offsets",
        (TREE, _with(max_running_requests=2**12, context_length=2**17), None),
        (CHAIN, _with(max_running_requests=2**12, context_length=2**17), None),
    ),
    ("pipeline", ("NGRAM tokens=8", PP, None), ("PLAIN", PP, None)),
    ("pipeline", (CHAIN, PP, None), (CHAIN.replace("EAGLE3", "NEXTN"), PP, None)),
    (
        "pipeline",
        (SPARK, PP, None),
        (SPARK, _with(extra="--pipeline-parallel-size 2 --disaggregation-mode prefill"), None),
    ),
    (
        "lora",
        (LONE, _with(extra="--enable-lora"), None),
        (TREE, _with(extra="--enable-lora"), None),
    ),
    ("lora", (UNO, _with(extra="--lora-paths a"), None), (UNO, GPU, None)),
    ("attention-dp", (LONE, DP, None), (CHAIN, DP, None)),
    (
        "attention-dp",
        ("NGRAM tokens=8", _with(extra="--dp-size 2 --enable-dp-attention"), None),
        ("NGRAM tokens=8", _with(extra="--dp-size 2"), None),
    ),
    ("attention-dp", (FLASH, DP, None), (FLASH, DP_HEAD, None)),
    ("attention-dp", (SPARK, DP, None), (SPARK, DP_HEAD, None)),
    (
        "attention-dp",
        (FLASH, _with(DP_HEAD, "--attn-dp-size 2", device="xpu"), None),
        (FLASH, _with(DP_HEAD, "--attn-dp-size 2", device="npu"), None),
    ),
    (
        "cpu-torch-compile",
        (CHAIN, _with(CPU, "--enable-torch-compile"), None),
        (CHAIN, _with(GPU, "--enable-torch-compile"), None),
    ),
    ("deepseek-v4", (TREE, GPU, DEEPSEEK_V4), (SPARK, GPU, DEEPSEEK_V4)),
    (
        "deepseek-v4",
        ("EAGLE steps=3 topk=2 tokens=8", GPU, DEEPSEEK_V4),
        ("EAGLE steps=3 topk=1 tokens=4", GPU, DEEPSEEK_V4),
    ),
    ("option-owner", (f"{CHAIN} match=BFS", GPU, None), ("NGRAM match=BFS", GPU, None)),
    ("option-owner", ("NGRAM block=8", GPU, None), (FLASH, GPU, None)),
    (
        "derived-shape",
        ("NGRAM topk=4 tokens=8", GPU, None),
        ("NGRAM breadth=4 tokens=8", GPU, None),
    ),
    ("derived-shape", (f"{FLASH} steps=1", GPU, None), (FLASH, GPU, None)),
    ("ngram-no-draft", (f"NGRAM tokens=8 {HEAD}", GPU, None), ("NGRAM tokens=8", GPU, None)),
    (
        "ngram-breadth",
        ("NGRAM breadth=3 min_breadth=4", GPU, None),
        ("NGRAM breadth=4 min_breadth=4", GPU, None),
    ),
    ("ngram-breadth", ("NGRAM min_breadth=0", GPU, None), ("NGRAM min_breadth=10", GPU, None)),
    ("ngram-depth", ("NGRAM trie_depth=1", GPU, None), ("NGRAM trie_depth=2", GPU, None)),
    ("ngram-match", ("NGRAM match=bfs", GPU, None), ("NGRAM match=PROB", GPU, None)),
    (
        "ngram-corpus",
        ("NGRAM tokens=8 corpus=/c", GPU, None),
        ("NGRAM tokens=8 corpus=/c sam_budget=7", GPU, None),
    ),
    (
        "ngram-corpus",
        ("NGRAM corpus=/c sam_budget=12", GPU, None),
        ("NGRAM corpus=/c sam_budget=11", GPU, None),
    ),
    ("dflash-draft", ("DFLASH block=8", GPU, None), (FLASH, GPU, None)),
    (
        "dspark-draft",
        ("DSPARK block=8", GPU, TARGET),
        ("DSPARK block=8", GPU, replace(TARGET, bundles_dspark=True)),
    ),
    ("block-size", (f"{FLASH} tokens=7", GPU, None), (f"{FLASH} tokens=8", GPU, None)),
    ("block-size", (f"{SPARK} tokens=8", GPU, None), (f"{SPARK} tokens=9", GPU, None)),
    ("block-size", (f"DFLASH block=1 {HEAD}", GPU, None), (f"DFLASH block=2 {HEAD}", GPU, None)),
    ("block-size", (f"DSPARK block=0 {HEAD}", GPU, None), (f"DSPARK block=1 {HEAD}", GPU, None)),
    ("uno-adapter", ("UNO tokens=8", GPU, None), (f"UNO tokens=8 {HEAD}", GPU, None)),
    ("uno-tokens", (f"UNO {HEAD}", GPU, None), (f"UNO tokens=8 {HEAD}", GPU, None)),
    ("uno-shape", (f"UNO steps=4 topk=4 tokens=4 {HEAD}", GPU, None), (UNO, GPU, None)),
    (
        "uno-shape",
        (f"UNO steps=4 topk=4 tokens=15 {HEAD}", GPU, None),
        (f"UNO steps=4 topk=4 tokens=14 {HEAD}", GPU, None),
    ),
    (
        "uno-shape",
        (f"UNO steps=16 topk=16 tokens=129 {HEAD}", GPU, None),
        (f"UNO steps=16 topk=16 tokens=128 {HEAD}", GPU, None),
    ),
    ("uno-shape", (f"UNO topk=4 tokens=8 {HEAD}", GPU, None), (UNO, GPU, None)),
    (
        "uno-shape",
        (f"UNO steps=3 tokens=8 {HEAD}", GPU, None),
        (f"UNO steps=1 tokens=8 {HEAD}", GPU, None),
    ),
    ("uno-deployment", (UNO, _with(tp_size=2), None), (UNO, _with(tp_size=1), None)),
    (
        "uno-deployment",
        (UNO, _with(attention_backend="triton"), None),
        (UNO, _with(attention_backend="fa3"), None),
    ),
    (
        "uno-deployment",
        (UNO, _with(extra="--enable-two-batch-overlap"), None),
        (f"UNO tokens=8 {HEAD}", _with(extra="--enable-two-batch-overlap"), None),
    ),
]


@pytest.mark.parametrize(("name", "broken", "valid"), CASES)
def test_a_rule_refuses_its_case_and_not_the_neighbour(
    name: str, broken: Case, valid: Case
) -> None:
    """Just this rule is broken, the message holds configuration and rule, the neighbour passes."""
    config = SpecConfig.parse(broken[0])

    messages = violations(config, broken[1], broken[2])

    assert len(messages) == 1
    assert messages[0].startswith(f"{config}: ")
    assert messages[0].endswith(f" (rule {name})")
    assert "\n" not in messages[0]
    assert violations(SpecConfig.parse(valid[0]), valid[1], valid[2]) == ()


def test_every_rule_has_a_case() -> None:
    """No rule is in the table without a test that breaks just it."""
    assert {rule.name for rule in RULES} == {name for name, _, _ in CASES}
    assert len({rule.name for rule in RULES}) == len(RULES)


@given(valid_configs())
def test_valid_configurations_pass(config: SpecConfig) -> None:
    """What is built to hold every rule breaks none."""
    require_valid(config, GPU)


deployments = st.builds(
    _with,
    extra=st.sampled_from(
        ["", "--pp-size x", "--pp-size", "--attn-dp-size 1 2", "--lora-paths a b"]
    ),
    device=st.sampled_from(["cuda", "cpu", "xpu", "npu", "cuda:0", "tpu"]),
    page_size=st.none() | st.integers(1, 128),
    attention_backend=st.sampled_from([None, "fa3", "triton", "trtllm_mla", "made_up"]),
)
targets = st.sampled_from([None, TARGET, MTP_TARGET, DEEPSEEK_V4])


@given(st.one_of(spec_configs(), valid_configs()), deployments, targets)
def test_violations_never_raises(
    config: SpecConfig, deployment: Deployment, target: ModelInfo | None
) -> None:
    """Any configuration on any deployment gets an answer, and plain decoding is always valid."""
    messages = violations(config, deployment, target)

    assert all(message.startswith(str(config)) for message in messages)
    assert violations(PLAIN, deployment, target) == ()


def test_the_first_violation_is_raised() -> None:
    """An invalid configuration is an input error that says what is wrong and which rule it is."""
    config = SpecConfig.parse("STANDALONE steps=3 topk=2 tokens=12")

    with pytest.raises(ConfigError) as caught:
        require_valid(config, GPU)

    assert str(caught.value) == (
        "STANDALONE steps=3 topk=2 tokens=12: a tree of steps=3 topk=2 holds at most 11 tokens, "
        "not 12 (rule tree-bound)"
    )


@given(st.integers(1, 6), st.integers(2, 5))
def test_tree_capacity_counts_the_tokens_that_drafting_offers(steps: int, topk: int) -> None:
    """The bound is the root and what the levels offer: topk, then topk for each branch kept."""
    offered = [topk if level == 0 else topk * topk for level in range(steps)]

    assert tree_capacity(steps, topk) == 1 + sum(offered)


@pytest.mark.engine
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_each_rule_names_a_place_that_exists(rule: object) -> None:
    """The file named is in the installed SGLang and holds what the rule points at."""
    sglang = pytest.importorskip("sglang")
    file, _, text = rule.where.partition(" ")  # type: ignore[attr-defined]  # parametrized
    source = (Path(sglang.__file__).parent / "srt" / file).read_text(encoding="utf-8")

    assert [part for part in text.split(", ") if part not in source] == []
