"""The best for each load and class: named only where it is clearly ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from autospec.breakdown import Winner
from autospec.config import PLAIN, SpecConfig
from autospec.errors import SchemaError
from autospec.evidence import Interval
from autospec.measure.stats import Ratio
from autospec.measurement import Measurement, RequestRecord, Run
from autospec.tune.objective import throughput
from autospec.tuning.winners import is_depth_of, schedule, winners

CHAINS = {steps: SpecConfig("STANDALONE", steps, 1, steps + 1, "d") for steps in (1, 3, 5)}
NGRAM = SpecConfig("NGRAM", num_draft_tokens=8)
#: Factors of three repeats: the machine's noise.
NOISE = (1.0, 1.01, 0.99)


def arm(
    config: SpecConfig,
    speeds: Mapping[str, float],
    loads: Mapping[int, float] | None = None,
    noise: Sequence[float] = NOISE,
) -> Measurement:
    """A measurement whose classes are served at these speeds; loads scale the throughput."""
    runs = []
    for repeat, factor in enumerate(noise):
        for level, scale in (loads or {1: 1.0, 8: 1.0}).items():
            records = tuple(
                RequestRecord(
                    prompt=index,
                    start_s=0.0,
                    end_s=10.0 / (speed * factor),
                    label=label,
                    completion_tokens=100,
                    verify_ct=None if config.is_plain else 10,
                    num_correct_drafts=10,
                    correct_histogram=() if config.is_plain else (0, 10),
                )
                for index, (label, speed) in enumerate(speeds.items())
            )
            rate = 10.0 * level * scale * factor
            runs.append(Run("tune", level, repeat, rate, (0.0, 1.0), 1.0, records))
    return Measurement(config, tuple(runs), 1.0, 2.0)


PLAINS = arm(PLAIN, {"chat": 1.0, "mail": 1.0})


def test_each_class_has_its_best_and_what_the_deployed_one_costs_it() -> None:
    """Long chains suit the mails, none suits the chat, and one for all costs both."""
    long = arm(CHAINS[5], {"chat": 0.6, "mail": 3.0})
    short = arm(CHAINS[1], {"chat": 0.9, "mail": 1.5})
    rows = winners(PLAINS, [long, short], CHAINS[1], throughput)
    assert [(row.label, row.config) for row in rows if row.label] == [
        ("chat", PLAIN),
        ("mail", CHAINS[5]),
    ]
    chat, mail = rows[-2:]
    assert mail.vs_plain.value == pytest.approx(3.0)
    assert mail.choice_vs_plain.value == pytest.approx(1.5)
    assert mail.vs_choice.value == pytest.approx(2.0)
    assert mail.vs_choice.low > 1
    assert mail.accept_length == 2.0
    assert chat.vs_plain == Interval(1.0, 1.0, 1.0)
    assert chat.accept_length is None
    assert chat.part == "chat"


def test_each_load_has_its_best() -> None:
    """A load is compared by the objective's figure, over all classes."""
    long = arm(CHAINS[5], {"mail": 1.0}, {1: 2.0, 8: 0.5})
    rows = winners(arm(PLAIN, {"mail": 1.0}), [long], CHAINS[5], throughput)
    by_load = {row.concurrency: row for row in rows if row.concurrency}
    assert by_load[1].config == CHAINS[5]
    assert by_load[1].vs_choice == Interval(1.0, 1.0, 1.0)
    assert by_load[8].config == PLAIN
    assert by_load[8].vs_choice.value == pytest.approx(2.0)
    assert by_load[8].part == "concurrency 8"


def test_lead_within_the_noise_is_no_lead() -> None:
    """The deployed configuration stands where another is ahead by less than passes scatter."""
    a = arm(CHAINS[1], {"mail": 1.5}, noise=(1.0, 1.1, 0.9))
    b = arm(CHAINS[3], {"mail": 1.52}, noise=(0.9, 1.0, 1.1))
    for floor in (0.0, 0.1):
        rows = winners(PLAINS, [a, b], CHAINS[1], throughput, floor)
        assert {row.config for row in rows} == {CHAINS[1]}


def test_noise_between_launches_takes_a_small_lead_away() -> None:
    """Twenty per cent are none where two launches of one configuration differ by as much."""
    a, b = arm(CHAINS[1], {"mail": 1.5}), arm(CHAINS[3], {"mail": 1.8})
    quiet, noisy = (winners(PLAINS, [a, b], CHAINS[1], throughput, f) for f in (0.0, 0.2))
    assert quiet[-1].config == CHAINS[3]
    assert noisy[-1].config == CHAINS[1]


def test_without_repeats_or_the_deployed_one_nothing_is_named() -> None:
    """One pass has no spread, and what was not measured cannot be compared with."""
    single = arm(CHAINS[1], {"mail": 3.0}, noise=(1.0,))
    assert winners(arm(PLAIN, {"mail": 1.0}, noise=(1.0,)), [single], PLAIN, throughput) == ()
    assert winners(PLAINS, [arm(CHAINS[1], {"mail": 3.0})], NGRAM, throughput) == ()


def test_part_is_a_load_or_a_class() -> None:
    """A row of both or of neither would not say what it is about."""
    one = Interval(1.0, 1.0, 1.0)
    for concurrency, label in ((None, None), (1, "mail")):
        with pytest.raises(SchemaError, match="not both"):
            Winner(PLAIN, one, one, one, concurrency, label)


def row(level: int, config: SpecConfig) -> Winner:
    """A winner at a load."""
    one = Interval(1.0, 1.0, 1.0)
    return Winner(config, one, one, one, concurrency=level)


def test_schedule_changes_the_depth_where_another_is_clearly_ahead() -> None:
    """Else the best configuration's where it was faster, and 0 where plain decoding was."""
    ratios = {1: Ratio(1.5, 1.4, 1.6, 6), 4: Ratio(1.1, 1, 1.2, 6), 8: Ratio(0.9, 0.8, 0.99, 6)}
    rows = [row(1, CHAINS[5]), row(4, CHAINS[3]), row(8, CHAINS[3])]
    assert schedule(CHAINS[3], ratios, rows) == {1: 5, 4: 3, 8: 0}
    assert schedule(CHAINS[3], ratios, [row(8, CHAINS[1]), row(4, PLAIN)]) == {1: 3, 4: 0, 8: 1}
    assert schedule(NGRAM, ratios, []) == {1: 7, 4: 7, 8: 0}
    assert schedule(None, ratios, []) == {1: 0, 4: 0, 8: 0}


def test_only_chains_of_one_draft_model_are_depths_of_each_other() -> None:
    """A tree, another method or another draft needs another launch."""
    tree = SpecConfig("STANDALONE", 3, 2, 8, "d")
    other = SpecConfig("STANDALONE", 3, 1, 4, "e")
    assert is_depth_of(CHAINS[1], CHAINS[3])
    for config in (tree, other, NGRAM, PLAIN):
        assert not is_depth_of(config, CHAINS[3])
        assert not is_depth_of(CHAINS[3], config)
