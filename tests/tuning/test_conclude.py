"""From measurements to a verdict: what is deployed, and on what it rests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autospec.breakdown import Stopped
from autospec.config import PLAIN, SpecConfig
from autospec.engine.args import Deployment
from autospec.engine.models import ModelInfo
from autospec.evidence import Environment, Interval, Noise, Provenance
from autospec.fidelity import Agreement, Lossless
from autospec.measure.sequential import StoppingRule
from autospec.measure.split import split
from autospec.measure.workload import read_workload
from autospec.measurement import Measurement, RequestRecord, ServerDelta
from autospec.profile import Profile, load_profile, save_profile
from autospec.tune.budget import Cost
from autospec.tune.search import Ranked, SearchOutcome
from autospec.tuning.conclude import conclude
from autospec.tuning.confirm import Confirmation, Finalist
from autospec.tuning.noise import compare_launches
from autospec.tuning.prepare import Prepared
from autospec.tuning.request import TuneRequest
from autospec.tuning.verdict import Evidence, needs_confirmation
from tests.tune.fakes import measured

NGRAM = SpecConfig("NGRAM", num_draft_tokens=8)
PROVENANCE = Provenance("autospec tune", "2026-01-01T00:00:00+00:00", 0, "gp", 1, 60.0, "done")
STEADY = (10.0, 10.1, 9.9)
SAME = Agreement(identical=12, near_ties=0, wide=0)
LOSSY = Lossless("differs", Agreement(3, 0, 9, (1, 2, 3), 4.0), SAME, near_tie_nats=0.5)


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    """A request over twelve prompts in two classes."""
    path = tmp_path / "p.jsonl"
    path.write_text(
        "".join(
            f'{{"prompt": "question {i}", "class": "{"ab"[i % 2]}", "max_new_tokens": 4}}\n'
            for i in range(12)
        )
    )
    workload = read_workload(path, default_max_new_tokens=8)
    return Prepared(
        request=TuneRequest("models/m", str(path), concurrencies=(1,)),
        target=ModelInfo("models/m", None, "LlamaForCausalLM", 100, 2048, 64, "d1"),
        environment=Environment("cpu", "A CPU", 1, "0.5.23", "auto", 1),
        deployment=Deployment(model="models/m", device="cpu", max_running_requests=48),
        server_environment={},
        parts=split(workload, 0, max_concurrency=1),
        candidates=(NGRAM,),
        refused=(),
        cost=Cost(1.0, 1.0),
    )


def arm(config: SpecConfig, values: Sequence[float], part: str = "tune") -> Measurement:
    """A measurement at concurrency 1 whose requests were half right."""
    record = RequestRecord(0, 0.0, 1.0, label="a", verify_ct=4, num_correct_drafts=4)
    record = replace(record, correct_histogram=(2, 1, 0, 1))
    records = () if config.is_plain else (record, replace(record, label="b", prompt=1))
    base = measured(config, {1: values}, part)
    server = ServerDelta(num_steps=10, batch_size=1.0, step_time_ms=90.0, num_tokens=10)
    runs = tuple(replace(run, records=records, server=server) for run in base.runs)
    return replace(base, runs=runs)


def confirmed_by(
    values: Sequence[float], lossless: Lossless | None = None, unfinished: str = ""
) -> Confirmation:
    """A confirmation of these throughputs, twice over, where plain decoding made 10."""
    best, plain = (*values, *values), (*STEADY, *STEADY)
    look = StoppingRule(max_pairs=6).look_levels({1: (best, plain)})
    return Confirmation(
        arm(PLAIN, plain, "confirm"),
        (Finalist(arm(NGRAM, best, "confirm"), look, lossless),),
        rounds=1,
        unfinished=unfinished,
    )


def decide(
    prepared: Prepared,
    values: Sequence[float],
    confirmed: Sequence[float] | None,
    lossless: Lossless | None = None,
) -> Profile:
    """The profile when the one candidate made ``values`` where plain decoding made 10."""
    best = arm(NGRAM, values)
    outcome = SearchOutcome(
        arm(PLAIN, STEADY), (Ranked(NGRAM, 0.0, 2, lambda _number: best),), "done"
    )
    confirmation = None if confirmed is None else confirmed_by(confirmed, lossless)
    return conclude(prepared, Evidence(outcome, confirmation), PROVENANCE)


def test_confirmed_win_is_deployed(prepared: Prepared) -> None:
    """Clearly faster on held-out prompts: the profile deploys it."""
    profile = decide(prepared, (15, 15, 15), (14, 14.2, 13.9))
    assert profile.verdict.decision == "faster"
    assert profile.verdict.part == "confirm"
    assert profile.choice.config == NGRAM
    assert profile.server_args()["speculative_algorithm"] == "NGRAM"
    assert profile.schedule == {1: 7}


@pytest.mark.parametrize(
    ("confirmed", "decision"),
    [
        ((9, 9, 9.1), "slower"),
        ((10.05, 10.1, 9.95), "equivalent"),
        ((8, 14, 12), "inconclusive"),
    ],
)
def test_win_that_is_not_confirmed_deploys_plain(
    prepared: Prepared, confirmed: Sequence[float], decision: str
) -> None:
    """However well it looked on the prompts it was chosen on."""
    profile = decide(prepared, (15, 15, 15), confirmed)
    assert profile.verdict.decision == decision
    assert profile.verdict.best == NGRAM
    assert profile.choice.config == PLAIN
    assert "speculative_algorithm" not in profile.server_args()
    assert "plain decoding is deployed" in profile.verdict.reason


def test_clear_loss_needs_no_confirmation(prepared: Prepared) -> None:
    """The verdict then says that it rests on the prompts searched on."""
    best = arm(NGRAM, (5, 5, 5.1))
    outcome = SearchOutcome(
        arm(PLAIN, STEADY), (Ranked(NGRAM, -0.7, 2, lambda _number: best),), "done"
    )
    assert not needs_confirmation(outcome)
    profile = decide(prepared, (5, 5, 5.1), None)
    assert profile.verdict.decision == "slower"
    assert profile.verdict.part == "tune"
    assert profile.choice.config == PLAIN


def test_loss_within_the_machines_noise_is_confirmed_before_it_counts(prepared: Prepared) -> None:
    """Ten per cent slower means little where two launches of plain decoding differ by twenty."""
    best = arm(NGRAM, (9, 9, 9.01))
    outcome = SearchOutcome(
        arm(PLAIN, STEADY), (Ranked(NGRAM, -0.1, 2, lambda _number: best),), "done"
    )
    noisy = Noise(Interval(1.2, 1.1, 1.3), floor=0.18, repeats=3, loads=())
    assert not needs_confirmation(outcome)
    assert needs_confirmation(outcome, noisy)
    profile = conclude(prepared, Evidence(outcome, None, noise=noisy), PROVENANCE)
    assert profile.verdict.decision == "inconclusive"


def test_failed_confirmation_is_inconclusive(prepared: Prepared) -> None:
    """What could not be confirmed is not deployed, and the reason says why."""
    best = arm(NGRAM, (15, 15, 15))
    outcome = SearchOutcome(
        arm(PLAIN, STEADY), (Ranked(NGRAM, 0.4, 2, lambda _number: best),), "done"
    )
    evidence = Evidence(outcome, Confirmation(failure="the server died"))
    profile = conclude(prepared, evidence, PROVENANCE)
    assert profile.verdict.decision == "inconclusive"
    assert profile.verdict.reason == "the server died"
    assert profile.choice.config == PLAIN


def test_no_candidate_at_all(prepared: Prepared) -> None:
    """Plain decoding is deployed and the verdict names no best."""
    outcome = SearchOutcome(arm(PLAIN, STEADY), (), "done")
    assert not needs_confirmation(outcome)
    profile = conclude(prepared, Evidence(outcome, None), PROVENANCE)
    assert profile.verdict.best is None
    assert profile.choice.config == PLAIN
    assert profile.schedule == {}


def test_acceptance_by_class_and_position(prepared: Prepared) -> None:
    """Over all prompts and over each class, from the per-request counters."""
    profile = decide(prepared, (15, 15, 15), (14, 14.2, 13.9))
    assert [row.label for row in profile.acceptance] == [None, "a", "b"]
    assert {row.accept_length for row in profile.acceptance} == {2.0}
    assert profile.acceptance[0].accept_rate_per_pos == (0.5, 0.25, 0.25)


def test_concluded_profile_is_a_readable_file(prepared: Prepared, tmp_path: Path) -> None:
    """What is concluded can be written and read back."""
    profile = decide(prepared, (15, 15, 15), (14, 14.2, 13.9))
    save_profile(tmp_path / "p.yaml", profile)
    assert load_profile(tmp_path / "p.yaml") == profile
    assert profile.workload.name == "p.jsonl"


def test_settings_that_the_servers_resolved_differently_are_kept(prepared: Prepared) -> None:
    """A smaller KV cache under speculation belongs to the evidence, whoever wins."""
    plain = replace(arm(PLAIN, STEADY), resolved={"max_total_num_tokens": 100, "page_size": 1})
    best = replace(
        arm(NGRAM, (5, 5, 5.1)),
        resolved={"max_total_num_tokens": 50, "page_size": 1, "speculative_algorithm": "NGRAM"},
    )
    outcome = SearchOutcome(plain, (Ranked(NGRAM, -0.7, 2, lambda _number: best),), "done")
    profile = conclude(prepared, Evidence(outcome, None), PROVENANCE)
    assert profile.verdict.differs_from_plain == ("max_total_num_tokens: 50 / 100",)


def test_lossy_winner_is_flagged_and_not_deployed(prepared: Prepared) -> None:
    """Faster, but its answers are not plain decoding's: the verdict says so with numbers."""
    profile = decide(prepared, (15, 15, 15), (14, 14.2, 13.9), LOSSY)
    assert profile.verdict.decision == "faster"
    assert profile.lossless == LOSSY
    assert profile.choice.config == PLAIN
    assert profile.schedule == {1: 0}
    for said in (
        "9 of 12 greedy answers differ",
        "0 of 12",
        "plain decoding is deployed",
        "--allow-lossy",
    ):
        assert said in profile.verdict.reason


def test_lossy_winner_is_deployed_when_allowed(prepared: Prepared) -> None:
    """The flag stays in the profile, and the reason says by what it was deployed."""
    allowing = replace(prepared, request=replace(prepared.request, allow_lossy=True))
    profile = decide(allowing, (15, 15, 15), (14, 14.2, 13.9), LOSSY)
    assert profile.choice.config == NGRAM
    assert profile.schedule == {1: 7}
    assert profile.lossless == LOSSY
    assert "deployed by --allow-lossy" in profile.verdict.reason


def test_lossless_winner_is_deployed(prepared: Prepared) -> None:
    """Answers that are the same, or differ as plain decoding's own do, change nothing."""
    same = Lossless("identical", SAME, SAME, near_tie_nats=0.5)
    profile = decide(prepared, (15, 15, 15), (14, 14.2, 13.9), same)
    assert profile.choice.config == NGRAM
    assert "answers" not in profile.verdict.reason


def test_reason_says_how_far_the_confirmation_went(prepared: Prepared) -> None:
    """Pairs of passes, and why there was no further round."""
    outcome = SearchOutcome(
        arm(PLAIN, STEADY), (Ranked(NGRAM, 0.4, 2, lambda _number: arm(NGRAM, STEADY)),), "done"
    )
    confirmation = confirmed_by((8, 14, 12), unfinished="the budget is used")
    profile = conclude(prepared, Evidence(outcome, confirmation), PROVENANCE)
    assert "inconclusive after 6 pairs" in profile.verdict.reason
    assert "the budget is used" in profile.verdict.reason


def test_noise_and_step_times_are_kept(prepared: Prepared) -> None:
    """Two launches of plain decoding, and each arm's steps over all its passes."""
    again = arm(PLAIN, (10.2, 10.3, 10.1))
    noise = compare_launches(arm(PLAIN, STEADY), again)
    outcome = SearchOutcome(
        arm(PLAIN, STEADY), (Ranked(NGRAM, 0.4, 2, lambda _number: arm(NGRAM, STEADY)),), "done"
    )
    evidence = Evidence(outcome, confirmed_by((14, 14.2, 13.9)), noise=noise)
    profile = conclude(prepared, evidence, PROVENANCE)
    assert profile.noise is not None
    assert profile.noise.ratio.value == pytest.approx(1.02, rel=0.01)
    assert profile.noise.floor >= 0.0195
    assert profile.noise.repeats == 3
    assert [(row.config, row.num_steps) for row in profile.step_times] == [(PLAIN, 90), (NGRAM, 90)]
    assert {row.step_time_ms for row in profile.step_times} == {90.0}


def test_warnings_are_kept_with_their_arm_and_number(prepared: Prepared) -> None:
    """Those that differ in numbers only are one line, counted over the arm's passes."""
    plain = arm(PLAIN, STEADY)
    runs = tuple(
        replace(run, warnings=(f"{run.repeat} of 4 requests were odd",)) for run in plain.runs
    )
    plain = replace(plain, runs=runs, warnings=("0 of 4 requests were odd", "passes got slower"))
    profile = conclude(prepared, Evidence(SearchOutcome(plain, (), "done"), None), PROVENANCE)
    assert profile.warnings == (
        "PLAIN: 0 of 4 requests were odd (3 of 3 passes)",
        "PLAIN: passes got slower",
    )


def test_servers_that_admit_differently_are_a_warning(prepared: Prepared) -> None:
    """A limit that differs may be what decides, whoever wins."""
    plain = replace(arm(PLAIN, STEADY), resolved={"max_running_requests": 48})
    best = replace(arm(NGRAM, (5, 5, 5.1)), resolved={"max_running_requests": 24})
    outcome = SearchOutcome(plain, (Ranked(NGRAM, -0.7, 2, lambda _number: best),), "done")
    profile = conclude(prepared, Evidence(outcome, None), PROVENANCE)
    assert any("max_running_requests is 24" in line for line in profile.warnings)


def test_profile_of_a_large_study_stays_below_300_lines(prepared: Prepared, tmp_path: Path) -> None:
    """However many candidates, failures and warnings; the best ones are kept."""
    configs = [SpecConfig("NGRAM", num_draft_tokens=tokens) for tokens in range(2, 60)]
    ranked = tuple(
        Ranked(config, -index, index, lambda number: arm(configs[number], (12, 12, 12)))
        for index, config in enumerate(configs)
    )
    baseline = arm(PLAIN, STEADY)
    odd = tuple(f"odd {'x' * number}" for number in range(60))
    outcome = SearchOutcome(replace(baseline, warnings=odd), ranked, "done")
    profile = conclude(prepared, Evidence(outcome, confirmed_by((14, 14, 14))), PROVENANCE)
    save_profile(tmp_path / "p.yaml", profile)
    assert load_profile(tmp_path / "p.yaml") == profile
    assert len((tmp_path / "p.yaml").read_text().splitlines()) < 300
    assert profile.points[0].config == configs[0]
    assert profile.points[-1].part == "confirm"
    assert "more kinds of warnings" in profile.warnings[-1]


TREE = SpecConfig("STANDALONE", 3, 2, 8, "models/d")


def search_of(*arms: Measurement) -> SearchOutcome:
    """A search that measured these, the best first."""
    ranked = tuple(
        Ranked(one.config, 0.4 - place, place, arms.__getitem__) for place, one in enumerate(arms)
    )
    return SearchOutcome(arm(PLAIN, STEADY), ranked, "done")


def test_best_finalist_is_deployed_though_the_search_ranked_another_first(
    prepared: Prepared,
) -> None:
    """All finalists' held-out rows are kept, and the reason says how many there were."""
    tree, ngram = arm(TREE, (15, 15.1, 14.9)), arm(NGRAM, (15, 15, 15.1))
    two = confirmed_by((14, 14.2, 13.9))
    plain = two.plain
    assert plain is not None
    looks = StoppingRule(max_pairs=6).look_levels({1: ((11.0, 11.1) * 3, STEADY * 2)})
    behind = Finalist(arm(TREE, (11.0, 11.1) * 3, "confirm"), looks)
    confirmation = replace(two, finalists=(*two.finalists, behind), lost=("X was lost",))
    profile = conclude(prepared, Evidence(search_of(tree, ngram), confirmation), PROVENANCE)
    assert profile.verdict.best == profile.choice.config == NGRAM
    assert "the best of 2 finalists" in profile.verdict.reason
    held_out = [row.config for row in profile.points if row.part == "confirm"]
    assert held_out == [NGRAM, TREE]
    assert "X was lost" in profile.warnings


def test_profile_says_what_one_choice_costs_each_load_and_class(prepared: Prepared) -> None:
    """A row for the load and for either class, among all complete candidates."""
    outcome = search_of(arm(NGRAM, (15, 15.1, 14.9)), arm(TREE, (30, 30.1, 29.9)))
    profile = conclude(prepared, Evidence(outcome, confirmed_by((14, 14.2, 13.9))), PROVENANCE)
    assert [row.part for row in profile.winners] == ["concurrency 1"]
    assert profile.winners[0].config == TREE
    assert profile.winners[0].vs_choice.value == pytest.approx(2.0, rel=0.01)


def test_candidates_that_were_stopped_are_kept_and_may_be_all_there_were(
    prepared: Prepared,
) -> None:
    """The verdict is then the race's own, on the best of them."""
    stopped = (
        Stopped(NGRAM, 3, Interval(0.8, 0.7, 0.9)),
        Stopped(TREE, 1, Interval(0.5, 0.4, 0.6)),
    )
    outcome = SearchOutcome(arm(PLAIN, STEADY), (), "done")
    profile = conclude(prepared, Evidence(outcome, None, stopped=stopped), PROVENANCE)
    assert profile.stopped == stopped
    assert profile.verdict.decision == "slower"
    assert profile.verdict.best == NGRAM
    assert "every candidate was stopped early" in profile.verdict.reason
    assert profile.choice.config == PLAIN
    better = (Stopped(NGRAM, 1, Interval(1.2, 1.1, 1.3)),)
    unsure = conclude(prepared, Evidence(outcome, None, stopped=better), PROVENANCE)
    assert unsure.verdict.decision == "inconclusive"


def test_latency_decides_by_the_time_per_token(prepared: Prepared) -> None:
    """The throughput may be lower; rows still show it, and the verdict says what it is about."""
    request = replace(prepared.request, objective="latency")
    plain, quick = (
        with_tpot(arm(config, values), tpot_ms)
        for config, values, tpot_ms in ((PLAIN, STEADY, 40.0), (NGRAM, (8, 8.1, 7.9), 80.0))
    )
    ranked = (Ranked(NGRAM, -0.7, 2, lambda _number: quick),)
    evidence = Evidence(SearchOutcome(plain, ranked, "done"), None)
    profile = conclude(replace(prepared, request=request), evidence, PROVENANCE)
    assert (profile.verdict.objective, profile.verdict.decision) == ("latency", "slower")
    assert profile.verdict.vs_plain is not None
    assert profile.verdict.vs_plain.value == pytest.approx(0.5)
    assert "tpot_ms" in profile.verdict.reason
    (row,) = profile.points
    assert row.vs_plain is not None
    assert row.vs_plain.value == pytest.approx(0.8, rel=0.02)


def with_tpot(measurement: Measurement, tpot_ms: float) -> Measurement:
    """The same with one request a pass, of eleven tokens."""
    runs = []
    for run in measurement.runs:
        last = 1.0 + tpot_ms * 10 * (1 + run.repeat / 1000) / 1000
        record = RequestRecord(0, 0.0, 3.0, chunk_s=(1.0, last), chunk_tokens=(1, 11))
        runs.append(replace(run, records=(record,)))
    return replace(measurement, runs=tuple(runs))
