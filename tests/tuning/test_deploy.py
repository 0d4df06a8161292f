"""What a profile binds to besides the model: the draft model, and the n-gram corpus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from autospec.config import SpecConfig
from autospec.errors import ConfigError, MismatchError
from autospec.profile import Profile
from autospec.tuning import deploy
from autospec.tuning.corpus import check_corpus
from tests.test_profile import make_profile


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """One that deploys NGRAM with a corpus, on the machine that it was measured on."""
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('"an answer"\n', encoding="utf-8")
    base = make_profile()
    options = (("ngram_external_corpus_path", str(corpus)),)
    config = SpecConfig("NGRAM", num_draft_tokens=8, options=options)
    monkeypatch.setattr(deploy, "require_sglang", lambda: None)
    monkeypatch.setattr(deploy, "detect", lambda _device: None)
    monkeypatch.setattr(deploy, "describe_environment", lambda *_: base.environment)
    model = SimpleNamespace(digest=base.target.digest)
    monkeypatch.setattr(deploy, "read_model", lambda _name, **_: model)
    return replace(
        base,
        target=replace(base.target, corpus_digest=check_corpus(corpus)),
        choice=replace(base.choice, config=config),
    )


def test_profile_fits_the_corpus_it_was_measured_with(profile: Profile) -> None:
    """The same text is the same corpus."""
    assert deploy.fit_profile(profile) == profile


def test_another_corpus_is_refused(profile: Profile) -> None:
    """What it drafts from decides its gain; ``--force`` takes it all the same."""
    path = Path(profile.choice.config.corpus or "")
    path.write_text('"another answer"\n', encoding="utf-8")
    with pytest.raises(MismatchError, match=r"corpus digest '.*corpus\.jsonl has '.*--force"):
        deploy.fit_profile(profile)
    assert deploy.fit_profile(profile, force=True) == profile
    path.unlink()
    with pytest.raises(ConfigError, match=r"corpus\.jsonl: cannot be read"):
        deploy.fit_profile(profile)


def test_another_draft_model_is_refused(profile: Profile) -> None:
    """It is compared by its digest, not by its name."""
    config = SpecConfig("STANDALONE", 3, 1, 4, "models/draft")
    drafting = replace(profile, choice=replace(profile.choice, config=config))
    target = replace(drafting.target, draft_digest=drafting.target.digest)
    same = replace(drafting, target=target)
    assert deploy.fit_profile(same) == same
    other = replace(drafting, target=replace(target, draft_digest="d0"))
    with pytest.raises(MismatchError, match="draft digest 'd0', models/draft has"):
        deploy.fit_profile(other)
