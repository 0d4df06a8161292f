"""Which runtime policy goes with a profile, as results say it."""

from __future__ import annotations

from pathlib import Path

from autospec.report.tables import policy_line


def test_the_policy_beside_the_profile_is_named_with_its_kind(tmp_path: Path) -> None:
    """A person sees which file to edit."""
    (tmp_path / "p.policy.yaml").write_text("schema: 1\nkind: fixed\n")
    assert policy_line(tmp_path / "p.yaml") == f"policy    {tmp_path / 'p.policy.yaml'}: fixed"


def test_without_one_the_default_is_named(tmp_path: Path) -> None:
    """And where one would be looked for."""
    line = policy_line(tmp_path / "p.yaml")
    assert line.startswith("policy    throughput, the default: there is no ")
    assert line.endswith("p.policy.yaml")


def test_a_broken_one_is_told_and_does_not_hide_the_profile(tmp_path: Path) -> None:
    """Showing a profile works whatever lies beside it."""
    (tmp_path / "p.policy.yaml").write_text("schema: 1\n")
    assert "key 'kind' is missing" in policy_line(tmp_path / "p.yaml")
