"""Which policy goes with a profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from autospec.control.choose import policy_for, sibling_policy
from autospec.errors import SchemaError


@pytest.mark.parametrize(
    ("profile", "policy"),
    [
        ("llama.yaml", "llama.policy.yaml"),
        ("llama-3.1.yml", "llama-3.1.policy.yaml"),
        ("llama-3.1", "llama-3.1.policy.yaml"),
        ("d.yaml/llama", "d.yaml/llama.policy.yaml"),
    ],
)
def test_the_policy_lies_beside_its_profile(profile: str, policy: str) -> None:
    """Only a suffix of YAML is replaced: a version number in the name stays."""
    assert sibling_policy(Path(profile)) == Path(policy)


def test_what_the_user_names_comes_first_then_the_sibling_then_the_default(tmp_path: Path) -> None:
    """Three places, in this order."""
    profile = tmp_path / "p.yaml"
    chosen = policy_for(profile)
    assert (chosen.name, chosen.policy.kind, chosen.origin) == (
        "throughput",
        "throughput",
        "default",
    )
    (tmp_path / "p.policy.yaml").write_text("schema: 1\nkind: fixed\n")
    chosen = policy_for(profile)
    assert (chosen.name, chosen.policy.kind) == (str(tmp_path / "p.policy.yaml"), "fixed")
    assert chosen.origin == "beside"
    chosen = policy_for(profile, "off")
    assert (chosen.name, chosen.policy.kind, chosen.origin) == ("off", "off", "named")
    assert policy_for(None).name == "throughput"


def test_a_broken_sibling_is_an_error_and_not_passed_over(tmp_path: Path) -> None:
    """The default in its place would be another server than the one asked for."""
    (tmp_path / "p.policy.yaml").write_text("schema: 1\nkind: fixed\nknobs: 3\n")
    with pytest.raises(SchemaError, match=r"p\.policy\.yaml: unknown key 'knobs'"):
        policy_for(tmp_path / "p.yaml")
