"""Parts that never share a prompt."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.errors import WorkloadError
from autospec.measure.prompt import Prompt
from autospec.measure.split import Part, Parts, set_aside, split
from autospec.measure.workload import Workload
from autospec.measurement import Sampling
from tests.measure.virtual import make_workload


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Workload, int]:
    """A workload whose classes are of any size and order, and a concurrency that it can hold."""
    concurrency = draw(st.integers(1, 6))
    least = 2 + 4 * concurrency
    labels = draw(
        st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=least, max_size=least + 80)
    )
    prompts = (Prompt(i, i + 1, 8, text=f"t{i}", label=label) for i, label in enumerate(labels))
    return Workload("w", tuple(prompts), Sampling(), "0"), concurrency


def all_parts(parts: Parts) -> tuple[Part, Part, Part]:
    """The three parts."""
    return parts.warmup, parts.tune, parts.confirm


@given(sized=workloads(), seed=st.integers())
def test_parts_share_no_prompt_and_lose_none(sized: tuple[Workload, int], seed: int) -> None:
    """Every prompt is in exactly one part."""
    workload, concurrency = sized
    parts = split(workload, seed, max_concurrency=concurrency)
    texts = [p.text for part in all_parts(parts) for p in part.prompts]
    assert len(texts) == len(set(texts))
    assert sorted(p.index for part in all_parts(parts) for p in part.prompts) == list(
        range(len(workload.prompts))
    )


@given(sized=workloads(), seed=st.integers())
def test_parts_are_large_enough(sized: tuple[Workload, int], seed: int) -> None:
    """Two prompts a slot to tune and to confirm, and about a tenth to warm up."""
    workload, concurrency = sized
    warmup, tune, confirm = all_parts(split(workload, seed, max_concurrency=concurrency))
    assert 2 <= len(warmup.prompts) <= max(2, len(workload.prompts) / 10 + 1, 2)
    assert len(confirm.prompts) >= 2 * concurrency
    assert 0 <= len(tune.prompts) - len(confirm.prompts) <= 1


@given(sized=workloads(), seed=st.integers())
def test_the_same_seed_gives_the_same_parts(sized: tuple[Workload, int], seed: int) -> None:
    """A study that is resumed measures the same prompts."""
    workload, concurrency = sized
    first = split(workload, seed, max_concurrency=concurrency)
    assert split(workload, seed, max_concurrency=concurrency) == first


def test_another_seed_gives_other_parts() -> None:
    """The seed decides."""
    workload = make_workload(60, classes=3)
    tunes = {split(workload, seed, max_concurrency=2).tune.prompts for seed in range(5)}
    assert len(tunes) == 5


@given(sized=workloads(), seed=st.integers())
def test_classes_are_spread_over_parts_and_over_each_beginning(
    sized: tuple[Workload, int], seed: int
) -> None:
    """In proportion, to within a few prompts."""
    workload, concurrency = sized
    share = Counter(p.label for p in workload.prompts)
    classes, total = len(share), len(workload.prompts)
    for part in all_parts(split(workload, seed, max_concurrency=concurrency)):
        within = Counter(p.label for p in part.prompts)
        size = len(part.prompts)
        for label in share:
            assert abs(within[label] - size * share[label] / total) <= 4
            for length in range(1, size + 1):
                begun = sum(p.label == label for p in part.prompts[:length])
                assert abs(begun - length * within[label] / size) <= (classes + 1) / 2


def test_equal_classes_are_in_every_beginning() -> None:
    """With three classes of one size, any three prompts in a row from the start are of each."""
    parts = split(make_workload(90, classes=3), 0, max_concurrency=8)
    for part in all_parts(parts):
        assert {p.label for p in part.prompts[:3]} == {"class 0", "class 1", "class 2"}
        assert max(Counter(p.label for p in part.prompts).values()) <= len(part.prompts) / 3 + 1


def test_too_few_prompts_are_refused_with_both_numbers() -> None:
    """How many there are, and how many are needed for what."""
    message = "traffic.jsonl: has 33 different prompts, 34 are needed for concurrency 8: 2 to warm"
    with pytest.raises(WorkloadError, match=message):
        split(make_workload(33), 0, max_concurrency=8)
    assert len(split(make_workload(34), 0, max_concurrency=8).confirm.prompts) == 16


def test_only_tune_and_confirm_can_be_measured() -> None:
    """Warm-up prompts are never measured."""
    parts = split(make_workload(20), 0, max_concurrency=2)
    assert parts.named("tune") is parts.tune
    assert parts.named("confirm") is parts.confirm
    for name in ("warmup", "test"):
        with pytest.raises(WorkloadError, match=f"'{name}' cannot be measured"):
            parts.named(name)


@given(size=st.integers(1, 30), count=st.integers(1, 30), repeat=st.integers(0, 50))
def test_a_pass_has_no_prompt_twice(size: int, count: int, repeat: int) -> None:
    """As many different prompts as asked for, or an error when there are too few."""
    part = Part("tune", make_workload(size).prompts)
    if count > size:
        with pytest.raises(WorkloadError, match=f"has {size} prompts, a pass needs {count}"):
            part.slice(repeat, count)
        return
    chosen = part.slice(repeat, count)
    assert len(set(chosen)) == count
    assert part.slice(repeat, count) == chosen


@given(size=st.integers(1, 30), data=st.data())
def test_repeats_walk_through_the_whole_part(size: int, data: st.DataObject) -> None:
    """Enough repeats send every prompt before any is sent a second time."""
    part = Part("tune", make_workload(size).prompts)
    count = data.draw(st.integers(1, size))
    passes = [prompt for r in range(-(-size // count)) for prompt in part.slice(r, count)]
    assert set(passes) == set(part.prompts)
    assert len(set(passes[:size])) == size


@given(sized=workloads(), seed=st.integers(), share=st.floats(0.1, 0.6))
def test_what_is_set_aside_is_measured_no_more(
    sized: tuple[Workload, int], seed: int, share: float
) -> None:
    """Tune and corpus are the old tune part, of each class as large a share; the rest stays."""
    workload, concurrency = sized
    before = split(workload, seed, max_concurrency=concurrency)
    try:
        after = set_aside(before, share, max_concurrency=concurrency)
    except WorkloadError:
        taken = len(before.tune.prompts) - 2 * concurrency
        assert share * len(before.tune.prompts) > taken - 4 or share * 4 < 4
        return
    assert (after.warmup, after.confirm) == (before.warmup, before.confirm)
    parts = (*after.tune.prompts, *after.corpus.prompts)
    assert sorted(p.index for p in parts) == sorted(p.index for p in before.tune.prompts)
    assert len(after.tune.prompts) >= 2 * concurrency
    counts = Counter(p.label for p in before.tune.prompts)
    taken_of = Counter(p.label for p in after.corpus.prompts)
    assert all(taken_of[label] == round(share * count) for label, count in counts.items())
    assert [part.name for part in after.all] == ["warmup", "corpus", "tune", "confirm"]


def test_too_little_to_set_aside_or_to_keep_is_refused() -> None:
    """With the numbers of prompts."""
    parts = split(make_workload(24), 0, max_concurrency=4)
    with pytest.raises(WorkloadError, match="keeps 5, must keep 8"):
        set_aside(parts, 0.5, max_concurrency=4)
    with pytest.raises(WorkloadError, match="set aside at least 1"):
        set_aside(parts, 0.01, max_concurrency=4)
