"""`openmanus-rl models`, and a packaged model wherever a model is named."""

import json

import pytest
from pocket_model import pocket_wheel
from typer.testing import CliRunner

from openmanus_rl.cli.main import app
from openmanus_rl.errors import UserError
from openmanus_rl.models.packaged import PACKAGED


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    return tmp_path_factory.mktemp("links")


@pytest.fixture(scope="module")
def pocket(links):
    return pocket_wheel(links)


@pytest.fixture
def run(links, pocket, tmp_path, monkeypatch):
    """Run `openmanus-rl` in an empty directory, where `pocket` is a packaged model that pip finds."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setitem(PACKAGED, "pocket", pocket)
    monkeypatch.chdir(tmp_path)

    def run(*words: str):
        return CliRunner().invoke(app, words, catch_exceptions=False)

    return run


def row_of(output: str, name: str) -> str:
    return next(line for line in output.splitlines() if f" {name} " in line)


def test_the_list_says_what_there_is_and_what_is_fetched(run):
    before = run("models", "list").output
    assert "Apache-2.0" in before
    assert all(name in before for name in ("tiny", "a directory", "owner/name"))
    assert "not fetched" in row_of(before, "smollm2-135m")
    assert "not fetched" in row_of(before, "pocket")
    run("models", "get", "pocket")
    after = run("models", "list").output
    assert "not fetched" in row_of(after, "smollm2-135m")
    assert "fetched: .cache/models/pocket" in row_of(after, "pocket")


def test_getting_a_model_shows_progress_and_how_to_use_it_and_is_done_once(run, tmp_path):
    first = run("models", "get", "pocket").output
    assert "pocket-model==1.0 (1 MB, once)" in first
    assert all(line.startswith(("model: ", ".cache/models/pocket")) for line in first.splitlines()), first
    assert (tmp_path / ".cache" / "models" / "pocket" / "model.safetensors").is_file()
    second = run("models", "get", "pocket").output
    assert second == ".cache/models/pocket is ready: --model pocket\n"


def test_a_model_is_written_where_it_is_wanted(run, tmp_path):
    assert "mine/pocket is ready: --model mine/pocket" in run("models", "get", "pocket", "--dir", "mine/pocket").output
    assert (tmp_path / "mine" / "pocket" / "tokenizer.json").is_file()
    assert not (tmp_path / ".cache").exists()


def test_an_unknown_model_is_told_with_the_nearest_name(run):
    with pytest.raises(UserError, match=r"no packaged model smollm2\. Did you mean smollm2-135m\?"):
        run("models", "get", "smollm2")


def test_fine_tuning_and_evaluation_take_a_packaged_name(run):
    small = ["env.options.size=2", "agent.max_turns=2", "trainer.threads=1", "model.max_context=512"]
    sft = run(
        "sft", "--output", "tuned", "--model", "pocket", "warm_start.demonstrations=4", "warm_start.epochs=1", *small
    )
    assert sft.exit_code == 0, sft.output
    assert "model: pocket comes with the package pocket-model==1.0" in sft.output
    assert "model: tuned/model" in sft.output
    for model in ("pocket", "tuned"):
        report = run("eval", model, "--n", "2", "--json", "agent.max_tokens_per_turn=4", *small)
        assert report.exit_code == 0, report.output
        assert json.loads(report.stdout)["policy"] == model
