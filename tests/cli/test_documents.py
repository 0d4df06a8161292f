"""Everything that the documents show is run, on the fake engine; and the check itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autospec import demo, schema
from autospec.config import PLAIN, SpecConfig
from autospec.control.load import load_policy
from autospec.engine.models import read_model
from autospec.evidence import StepTime
from autospec.profile import Profile, load_profile, save_profile
from tests.cli.conftest import Run, write_model, write_prompts
from tests.cli.documents import (
    DOCUMENTS,
    ROOT,
    Block,
    DocumentError,
    check_inline,
    check_other,
    find_blocks,
    inline_commands,
    parse_command,
)
from tests.cli.reader import Reader
from tests.client.helpers import eagle, plain
from tests.report.synthetic import write_study

TRACE = [
    {"schema": 1, "algorithm": "STANDALONE", "depth": 3, "topk": 1},
    *({"t": 0.01 * step, "batch": 2, "correct": [0, 3]} for step in range(60)),
]


def chain_profile(profile: Profile, target: Path, draft: Path) -> Profile:
    """A profile of a chain, with the step times that policies and replays need."""
    config = SpecConfig(
        "STANDALONE", num_steps=3, topk=1, num_draft_tokens=4, draft_model=str(draft)
    )
    arguments = {
        **{k: v for k, v in profile.server_args().items() if not k.startswith("speculative")},
        "model_path": str(target),
        "speculative_algorithm": "STANDALONE",
        "speculative_draft_model_path": str(draft),
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
    }
    digests = {"model": str(target), "digest": read_model(str(target)).digest}
    return replace(
        profile,
        target=replace(profile.target, **digests, draft_digest=read_model(str(draft)).digest),
        verdict=replace(profile.verdict, best=config),
        choice=replace(profile.choice, config=config, server_args=arguments),
        points=tuple(replace(point, config=config) for point in profile.points),
        step_times=(StepTime(PLAIN, 1, 1.0, 10.0, 99), StepTime(config, 1, 1.0, 14.0, 99)),
    )


@pytest.fixture
def reader(
    tmp_path: Path, profile: Profile, run: Run, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Reader]:
    """Somebody with a demo study, models, prompts, a profile, a trace and two running servers."""
    models = tmp_path / "models"
    models.mkdir()
    target, draft = write_model(models / "llama"), write_model(models / "draft")
    chain = chain_profile(profile, target, draft)
    write_study(tmp_path / "autospec-studies" / "demo", 4)
    (tmp_path / "profiles").mkdir()
    for name in ("demo.yaml", "llama.yaml", "profiles/demo-cpu.yaml"):
        save_profile(tmp_path / name, chain)
    monkeypatch.setattr(demo, "model_path", lambda *_: target)
    monkeypatch.setattr(demo, "draft_path", lambda: draft)
    monkeypatch.setattr(demo, "prompts_path", lambda: tmp_path / "traffic.jsonl")
    write_prompts(tmp_path / "traffic.jsonl", 40)
    (tmp_path / "TRACE.jsonl").write_text("".join(json.dumps(line) + "\n" for line in TRACE))
    (tmp_path / "mine.yaml").write_text("schema: 1\nkind: fixed\n")
    times = {"step_time_ms": {"0": {"1": 10.0}, "3": {"1": 14.0}}}
    (tmp_path / "costs.json").write_text(json.dumps(times))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.setenv("AUTOSPEC_CACHE", str(tmp_path / "cache"))
    for name in ("AUTOSPEC_PROFILE", "AUTOSPEC_POLICY", "AUTOSPEC_TRACE", "SGLANG_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    with eagle() as one, plain() as other:
        servers = {"http://spec:30000": one.url, "http://plain:30001": other.url}
        servers |= {"http://127.0.0.1:30000": one.url, "http://127.0.0.1:30001": other.url}
        yield Reader(tmp_path, run, monkeypatch, servers)


WITH_BLOCKS = [document for document in DOCUMENTS if find_blocks(document)]


@pytest.mark.parametrize("document", WITH_BLOCKS, ids=lambda path: path.name)
def test_everything_that_a_document_shows_works(document: Path, reader: Reader) -> None:
    """Commands in the order of the text, Python as one program, files through their loaders."""
    assert reader.read(find_blocks(document)) >= 1


def test_getting_started_ends_with_a_profile_of_the_readers_own(reader: Reader) -> None:
    """The files that it speaks of are there afterwards."""
    reader.read(find_blocks(ROOT / "docs" / "getting-started.md"))
    assert (reader.folder / "report.html").is_file()
    assert (reader.folder / "vllm.yaml").is_file()
    tuned = load_profile(reader.folder / "llama.yaml")
    assert tuned.target.model == str(reader.folder / "models" / "llama")
    assert tuned.provenance.trials == 2


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_the_running_text_are_real(document: Path) -> None:
    """Each names a command, and options which that has."""
    for command in inline_commands(document):
        check_inline(command)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    """Every file that is named is there, and so is the heading."""
    text = document.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([\w-]+))?\)", text):
        file = document.parent / target if target else document
        assert file.exists(), target
        if anchor:
            heads = re.findall(r"(?m)^#+ (.*)$", file.read_text(encoding="utf-8"))
            slugs = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in slugs, f"{target}#{anchor}"


@pytest.mark.parametrize(
    "path",
    sorted(
        path
        for path in ROOT.rglob("*.y*ml")
        if path.suffix in {".yaml", ".yml"} and ROOT.joinpath(".venv") not in path.parents
    ),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_every_yaml_file_loads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy as a policy, a profile as a profile: there are no others."""
    if "kind" in schema.read_yaml(path):
        load_policy(path)
    else:
        load_profile(path)


WRONG = {
    "bash": [
        ("autospec show llama.yaml --colour", "No such option"),
        ("autospec tune models/llama --prompt traffic.jsonl", "No such option"),
        ("autospec export llama.yaml --format tgi", "'tgi' is not one of"),
        ("autospec measure llama.yaml", "No such command"),
        ("autospec show missing.yaml", "exit code"),
        ("autospec serve llama.yaml --policy no-such", "no-such"),
        ("autospec watch http://127.0.0.1:30000 --profile other.yaml", "No such file"),
        ("python -m sglang.launch_server --modelpath m", "--modelpath is not there"),
        ("python -m sglang.launch_server $(autospec args missing.yaml)", "missing.yaml"),
        ("python -m sglang.launch_server $(autospec args llama.yaml)", "must say what it needs"),
        ("make demonstration", "demonstration is not there"),
        ("curl http://127.0.0.1:30000", "nothing here can check this program"),
    ],
    "python": [
        ("import autospec\nautospec.load_profiles('llama.yaml')", "load_profiles"),
        ("import sglang\nsglang.Engine(modelpath='m')", "--modelpath"),
    ],
    "yaml": [
        ("schema: 1\nkind: throughput\nparameters: {share: 1}\n", "share"),
        ("verdict: {decision: splendid}\n", "in no shipped profile"),
    ],
    "jsonl": [
        ('{"prompt": 3}', "prompt"),
        (
            '{"schema": 1, "algorithm": "EAGLE3", "depth": 5, "topk": 1}\n{"t": 0}',
            "correct must be",
        ),
    ],
}


@pytest.mark.parametrize(
    ("language", "code", "said"),
    [(language, *case) for language, cases in WRONG.items() for case in cases],
)
def test_what_is_wrong_in_a_block_is_found(
    reader: Reader, language: str, code: str, said: str
) -> None:
    """An option, a command, a file, a key or a name that is not there fails the document's test."""
    with pytest.raises(Exception, match=re.escape(said)):
        reader.read([Block(Path("x.md"), 1, language, code)])


@pytest.mark.parametrize("command", ["tune models/x --budgets 45m", "serve", "bench --repeats 1"])
def test_what_only_a_gpu_can_run_is_parsed(reader: Reader, command: str) -> None:
    """The mark spares the run, not the options."""
    with pytest.raises(DocumentError, match="autospec"):
        reader.read([Block(Path("x.md"), 1, "bash", f"autospec {command}", "gpu")])
    parse_command(["tune", "org/model", "--tp-size", "8"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```\nautospec show p.yaml\n```\n", "language ''"),
        ("```text\nautospec show p.yaml\n```\n", "holds a command"),
        ("```bash\nautospec show p.yaml\n", "never ends"),
        ("<!-- needs: luck -->\n```bash\nautospec show p.yaml\n```\n", "needs 'luck'"),
    ],
)
def test_no_block_goes_unchecked(tmp_path: Path, text: str, said: str) -> None:
    """Without a language, as text, without an end or with a mark of its own."""
    (tmp_path / "x.md").write_text(text)
    with pytest.raises(DocumentError, match=said):
        find_blocks(tmp_path / "x.md")


def test_every_block_is_found(tmp_path: Path) -> None:
    """With its language, its first line, what it needs, and commands over several lines as one."""
    text = (
        "# X\n\n<!-- needs: gpu -->\n```bash\n# first\na \\\n  b\nc\n```\n\n```python\nx = 1\n```\n"
    )
    (tmp_path / "x.md").write_text(text)
    one, two = find_blocks(tmp_path / "x.md")
    assert (one.language, one.line, one.needs, two.line) == ("bash", 5, "gpu", 12)
    assert [line.split() for line in one.commands()] == [["a", "b"], ["c"]]
    assert (two.language, two.needs, two.code) == ("python", None, "x = 1\n")


@pytest.mark.parametrize(
    "text", ["autospec tune --budgets", "autospec measure X", "autospec replay policy --trace T"]
)
def test_wrong_words_in_the_running_text_are_found(text: str, tmp_path: Path) -> None:
    """Commands and options; what is left out is no fault."""
    (tmp_path / "x.md").write_text(f"Say `{text}`, or `autospec tune --resume\nSTUDY`.\n")
    wrong, right = inline_commands(tmp_path / "x.md")
    check_inline(right)
    with pytest.raises(DocumentError, match="no"):
        check_inline(wrong)


def test_other_programs_are_checked_for_what_they_name() -> None:
    """An extra that this distribution has, and one that it has not."""
    check_other(["pip", "install", "sglang-autospec[sglang,report]"])
    with pytest.raises(DocumentError, match="gpu"):
        check_other(["pip", "install", "sglang-autospec[gpu]"])
