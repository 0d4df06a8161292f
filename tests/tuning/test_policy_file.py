"""The runtime policy that a study writes beside its profile."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.config import PLAIN, SpecConfig
from autospec.control.choose import policy_for
from autospec.control.costs import costs_of_profile, drafting_depth
from autospec.control.load import PolicyFile, load_policy, make_controller
from autospec.control.policy import Observation, Setting
from autospec.errors import StorageError
from autospec.evidence import Interval, Noise, Point, StepTime
from autospec.profile import Choice, Profile, Verdict
from autospec.tuning.policy_file import fit_policy, policy_text, save_policy
from tests.test_profile import make_profile


def chain(steps: int, algorithm: str = "EAGLE3") -> SpecConfig:
    """A chain."""
    return SpecConfig(algorithm, num_steps=steps, topk=1, num_draft_tokens=steps + 1)


def fitted_to(config: SpecConfig, *others: SpecConfig, **changes: object) -> PolicyFile:
    """The policy of a profile that deploys a configuration and measured others beside it."""
    return fit_policy(deploying(config, *others, **changes)).policy


def deploying(config: SpecConfig, *others: SpecConfig, **changes: object) -> Profile:
    """A profile with step times of plain decoding, of what it deploys and of others."""
    arguments: dict[str, bool | int | float | str | tuple[int | float | str, ...]] = {
        "model_path": "m"
    }
    if not config.is_plain:
        arguments["speculative_algorithm"] = config.algorithm
    decision = "slower" if config.is_plain else "faster"
    best = others[0] if config.is_plain else config
    rows = [StepTime(c, 1, 1.0, 10.0 + 2 * drafting_depth(c), 90) for c in (PLAIN, best, *others)]
    base = make_profile(
        verdict=Verdict(decision, "it is", "confirm", best),  # type: ignore[arg-type]  # narrowed to str
        choice=Choice(config, arguments, {}),
        step_times=tuple(rows),
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]  # any field


def noise(floor: float) -> Noise:
    """The noise of a machine."""
    return Noise(Interval(1.0, 0.9, 1.1), floor, 3, ())


def test_a_chain_may_take_every_measured_depth_up_to_the_deployed_one() -> None:
    """A deeper one would need more than the server is started with."""
    policy = fitted_to(chain(3), chain(1), chain(2), chain(5))
    assert policy.kind == "throughput"
    assert policy.parameters["depths"] == (0, 1, 2, 3)


def test_where_depths_cost_memory_only_those_that_may_matter_are_candidates() -> None:
    """The shallowest, the deployed one, and what was best at some load; a CPU takes all."""
    rates = {(2, 1): 10, (4, 1): 30, (6, 1): 20, (2, 8): 40, (4, 8): 50, (6, 8): 60}
    points = tuple(
        Point(chain(steps), "tune", load, Interval(rate, rate, rate), 3)
        for (steps, load), rate in rates.items()
    )
    others = [chain(steps) for steps in (1, 2, 3, 4, 5, 8)]
    profile = deploying(chain(6), *others, points=points)
    assert fit_policy(profile).policy.parameters["depths"] == (0, 1, 2, 3, 4, 5, 6)
    gpu = dataclasses.replace(profile.environment, device="cuda")
    profile = dataclasses.replace(profile, environment=gpu)
    assert fit_policy(profile).policy.parameters["depths"] == (0, 1, 4, 6)


@pytest.mark.parametrize(
    ("config", "depth", "says"),
    [
        (SpecConfig("NGRAM", num_draft_tokens=8), 7, "switched on and off in the server"),
        (SpecConfig("EAGLE3", 3, 4, 8), 3, "no server can switch a draft tree"),
        (SpecConfig("DFLASH", num_draft_tokens=8), 7, "no server can switch DFLASH"),
    ],
)
def test_what_has_one_depth_may_take_it_or_none(config: SpecConfig, depth: int, says: str) -> None:
    """The file says who can obey it: for a tree, a client that routes to a plain server."""
    other = dataclasses.replace(config, num_draft_tokens=4)
    fitted = fit_policy(deploying(config, other))
    assert fitted.policy.parameters["depths"] == (0, depth)
    assert says in policy_text(fitted, "p.yaml").splitlines()[0]


def test_plain_decoding_gets_a_policy_that_never_speculates() -> None:
    """A profile that deploys plain decoding is obeyed, whatever server it is used with."""
    policy = fitted_to(PLAIN, chain(2))
    controller = make_controller(policy, Setting((0, 2)))
    assert controller.decide(Observation(1)).depth == 0


def test_without_step_times_speculation_stays_as_deployed() -> None:
    """Nothing to weigh it with: what was measured to be faster stays on."""
    policy = fitted_to(chain(2), step_times=())
    assert make_controller(policy, Setting((0, 2))).decide(Observation(1)).depth == 2


@given(floor=st.floats(0, 1))
def test_noise_makes_it_indifferent_within_bounds(floor: float) -> None:
    """What is smaller than the machine's noise is no gain; 2 % of plain decoding always is."""
    parameters = fitted_to(chain(2), noise=noise(floor)).parameters
    assert 0.01 <= parameters["indifference"] <= 0.02
    assert parameters["indifference"] >= min(floor, 0.02)
    assert parameters["indifference"] <= parameters["depth_indifference"] <= 0.03


def test_unknown_noise_leaves_the_defaults() -> None:
    """A study too short to know its noise."""
    assert set(fitted_to(chain(2), noise=None).parameters) == {"depths"}


def test_loads_above_a_plain_one_are_plain() -> None:
    """Where speculation had stopped to pay at the largest load, larger ones were not measured."""
    assert fitted_to(chain(2), schedule={1: 2, 8: 2, 32: 0}).gates.max_batch_size == 32
    assert fitted_to(chain(2), schedule={1: 0, 8: 2}).gates.max_batch_size is None
    assert fitted_to(chain(2), schedule={}).gates.max_batch_size is None


def test_the_file_reads_back_short_and_works_with_its_profile(tmp_path: Path) -> None:
    """What is written is what was fitted, and the policy takes the profile's step times."""
    profile = deploying(chain(3), chain(1), noise=noise(0.0123), schedule={1: 3, 8: 0})
    path = save_policy(profile, tmp_path / "llama.yaml")
    assert path == tmp_path / "llama.policy.yaml"
    assert len(path.read_text().splitlines()) < 40
    assert path.read_text().startswith("# Runtime policy of llama.yaml: ")
    policy = load_policy(path)
    fitted = fit_policy(profile).policy
    depths = tuple(policy.parameters.pop("depths"))
    assert depths == fitted.parameters.pop("depths") == (0, 1, 3)
    assert policy == fitted
    policy = policy_for(tmp_path / "llama.yaml").policy
    setting = Setting((0, 1, 3), costs_of_profile(profile, "llama.yaml"))
    assert make_controller(policy, setting).decide(Observation(1)).depth == 3
    assert make_controller(policy, setting).decide(Observation(9)).depth == 0


def test_the_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """An error names the file; nothing half-written stays."""
    (tmp_path / "p.policy.yaml").mkdir()
    with pytest.raises(StorageError, match=r"p\.policy\.yaml: cannot be written"):
        save_policy(make_profile(), tmp_path / "p.yaml")
    assert [item.name for item in tmp_path.iterdir()] == ["p.policy.yaml"]
