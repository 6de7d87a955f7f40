"""The pages tell the truth: their commands run, their outputs are right, their links lead somewhere.

A command in a bash block of README.md or docs/ is run here, as it stands or with words that make it small, or it is in
`COVERED` with the test that runs it. One that is neither fails.
"""

import contextlib
import importlib.util
import inspect
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from doc_pages import DOCS, PAGES, README, ROOT, Block, anchors, blocks_in, code, links, section, table

from openmanus_rl.agent.episode import StopReason
from openmanus_rl.cli.main import main
from openmanus_rl.envs.registry import ENVIRONMENTS

PORT = "36001"
"""The port that the pages use; the tests serve on a free one."""

TINY_MODEL = shlex.split(
    "model.tiny.hidden_size=32 model.tiny.layers=1 model.tiny.intermediate_size=64 data.train_tasks=16 "
    "warm_start.demonstrations=16 warm_start.epochs=1 agent.max_turns=2 trainer.threads=1"
)
TINY_RUN = [
    *TINY_MODEL,
    *shlex.split(
        "data.validation_tasks=2 rollout.tasks_per_step=2 agent.max_tokens_per_turn=8 "
        "trainer.steps=1 trainer.validate_every=1 trainer.save_every=1"
    ),
]

RUN: dict[str, list[str]] = {
    r"openmanus-rl (env|models) list": [],
    r"openmanus-rl env check high_low:HighLow": [],
    r"openmanus-rl data inspect \S+": [],
    r"openmanus-rl data build .*": ["--train", "8", "--validation", "4", "--test", "4"],
    r"openmanus-rl eval .*--policy .*": ["--n", "8"],
    r"openmanus-rl eval (?!--endpoint).*": ["--n", "2"],
    r"openmanus-rl export .*": [],
    r"openmanus-rl play .*": [],
    r"openmanus-rl replay .*": [],
    r"openmanus-rl episodes .*": [],
    r"openmanus-rl sft --data runs.*": ["trainer.threads=1"],
    r"openmanus-rl sft (?!--data solved).*": TINY_MODEL,
    r"openmanus-rl (train|sft|eval|env|data|models)( \w+)? --help": [],
    r"openmanus-rl plan( .*)?": TINY_RUN,
    r"openmanus-rl train (?!agent\.program).*[a-z](\.py)?:[a-zA-Z].*": TINY_RUN,
    r"openmanus-rl train.*": ["--print-config"],
}
"""Commands that are run in this process, and what is added to make them small. The first that fits counts.

Training on the reader's own code is played for real; the rest of training is resolved to its config, which finds every
wrong flag and key: `./train_grpo.sh` itself is in tests/test_scripts.py.
"""

HELPS = (r"\./train_(grpo|ppo)\.sh --help",)
"""Commands that are run as they stand, from the root of the repository."""

COVERED = {
    r"openmanus-rl env serve maze --port 36001": "tests/docs/test_docs.py::test_requests_shown_are_answered_as_shown",
    r"openmanus-rl env serve maze --max-sessions .*": (
        "tests/cli/test_cli_verbs.py::test_the_limits_of_a_server_are_set_where_it_is_started"
    ),
    r"openmanus-rl models get smollm2-135m.*": "tests/models/test_packaged.py::test_the_real_smollm2_answers",
    r"openmanus-rl env serve searchqa": "tests/envs/test_searchqa.py::test_an_agentgym_client_searches_and_answers",
    r"openmanus-rl env serve sqlgym": "tests/envs/test_sqlgym.py::test_an_agentgym_client_asks_once",
    r"openmanus-rl env serve todo": "tests/envs/test_todo.py::test_an_agentgym_client_calls_tools",
    r"openmanus-rl env serve weather": "tests/envs/test_weather.py::test_an_agentgym_client_asks_for_the_weather",
    r"openmanus-rl env serve webshop": "tests/envs/test_webshop.py::test_an_agentgym_client_shops_here",
    r"openmanus-rl env install .*": "tests/envs/test_install.py::test_a_world_over_there_is_played_as_if_it_were_here",
    r"openmanus-rl env serve alfworld": "tests/envs/test_alfworld.py::test_the_agentgym_routes_answer_key_by_key",
    r"openmanus-rl env serve sciworld": "tests/envs/test_sciworld.py::test_the_agentgym_routes_answer_key_by_key",
    r"openmanus-rl env serve babyai": "tests/envs/test_babyai.py::test_agentgyms_routes_answer_with_its_keys",
    r"openmanus-rl env serve (maze|textcraft|wordle)": (
        "tests/envs/test_agentgym_routes.py::test_create_and_reset_answer_with_the_keys_of_their_family"
    ),
    r"openmanus-rl (eval --endpoint|sft --data solved).*": (
        "tests/trainer/test_endpoint_evaluation.py::test_what_a_model_behind_an_endpoint_solved_can_be_fine_tuned_on"
    ),
    r"python bench/rollout\.py.*": "tests/agent/test_rollout_bench.py::test_the_bench_of_the_rollout_runs",
    r"openmanus-rl env check .*": "tests/envs/test_check.py::test_every_built_in_world_passes",
    r"openmanus-rl env (record|replay) .*": (
        "tests/envs/test_cassette.py::test_the_commands_record_a_session_play_it_back_and_exit_with_1_on_a_deviation"
    ),
    r"python scripts/make_config_reference\.py": "tests/docs/test_docs.py::test_the_reference_of_keys_is_the_schemas",
    r"openmanus-rl view .*": "tests/viewer/test_view_verb.py::test_the_verb_prints_the_address_and_ends_with_ctrl_c",
    r"python scripts/screenshots\.py .*": "tests/viewer/test_screenshots.py::test_every_view_is_taken_in_both_colours",
    r"python bench/gae\.py": "tests/algorithms/test_gae.py::test_the_bench_of_gae_runs",
    r"python bench/credit\.py": "tests/algorithms/test_credit_benches.py::test_the_bench_of_credit_runs",
    r"python bench/estimators\.py.*": "tests/algorithms/test_credit_benches.py::test_the_bench_of_estimators_runs",
    r"python bench/engine\.py": "tests/docs/test_docs.py::test_the_engine_bench_runs",
    r"python bench/async_training\.py": (
        "tests/trainer/test_async_figures.py::test_a_step_takes_as_long_as_the_longer_of_playing_and_training"
    ),
    r"python bench/async_training\.py --success": (
        "tests/trainer/test_async_figures.py::test_playing_ahead_learns_as_well_as_taking_turns"
    ),
    r"python bench/object_store\.py": "tests/distributed/test_ray_groups.py::test_the_bench_of_the_object_store_runs",
    r"openmanus-rl evolve .*": (
        "tests/trainer/test_self_improvement.py::test_a_stopped_evolution_goes_on_with_the_round_it_stood_in"
    ),
    r"openmanus-rl dpo .*": (
        "tests/trainer/test_self_improvement.py::test_dpo_makes_a_model_that_prefers_what_succeeded"
    ),
    r"pytest -m slow": "tests/test_scripts.py::test_all_adds_the_slow_tests",
    r"\./test\.sh --all": "tests/test_scripts.py::test_all_adds_the_slow_tests",
    r"\./test\.sh.*": "tests/test_scripts.py::test_all_checks_run_and_slow_tests_do_not",
}
"""Commands that another test runs."""

OURS = re.compile(r"(openmanus-rl|python3?|pytest|ruff|mypy|lint-imports|\./\S+|scripts/\S+|\.ci/\S+)( |$)")
"""What must be run or covered; `git clone` and `cd` need no proof."""

COMMAND_BLOCKS = [block for block in blocks_in("bash") if "curl" not in block.text]
CURL_BLOCKS = [block for block in blocks_in("bash") if "curl" in block.text]
PYTHON_BLOCKS = blocks_in("python", *DOCS.glob("*.md"))


def block_id(block: Block) -> str:
    return block.where


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A directory like the repository's root: the examples, files that pages spell out, and two small finished runs."""
    place = tmp_path_factory.mktemp("workspace")
    (place / "examples").symlink_to(ROOT / "examples")
    for block in blocks_in("python"):
        name = re.match(r"# (\w+\.py)\n", block.text)
        if name:
            (place / name[1]).write_text(block.text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        kl_in_reward = ["algorithm.kl.where=reward", "actor.proximal=recompute"]
        equals_stay = ["algorithm.drop_zero_variance_groups=false", "algorithm.options.normalise_std=false"]
        run_cli(["train", *TINY_RUN, *kl_in_reward, *equals_stay])
        kl_in_loss = ["algorithm.kl.where=loss", "algorithm.loss_options.dual_clip=3", "tracking.tensorboard=false"]
        run_cli(["train", "--algorithm", "ppo", *TINY_RUN, *kl_in_loss])
    return place


@pytest.fixture
def inside(workspace, monkeypatch):
    monkeypatch.chdir(workspace)
    return workspace


@pytest.fixture(scope="module")
def maze_url():
    """A maze served by `openmanus-rl env serve maze`, on a free port."""
    program = "from openmanus_rl.cli.main import main; main()"
    command = [sys.executable, "-c", program, "env", "serve", "maze", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().rpartition(" ")[2].strip()
        finally:
            server.terminate()


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def run_cli(words: list[str], expect: int = 0) -> str:
    """What `openmanus-rl WORDS` prints; it is run in this process, where torch is loaded already."""
    printed = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        patch.setattr(sys, "argv", ["openmanus-rl", *words])
        patch.setattr(sys, "stdin", io.StringIO())
        try:
            main()
        except SystemExit as end:
            exit_code = end.code or 0
        else:
            exit_code = 0
    assert exit_code == expect, f"openmanus-rl {shlex.join(words)} ended with {exit_code}:\n{printed.getvalue()}"
    return printed.getvalue()


def run_command(command: str, shows_output: bool, expect: int) -> str:
    """Run a command of a page; a failure says what to do about one that nobody runs."""
    if any(re.fullmatch(pattern, command) for pattern in HELPS):
        return subprocess.run(
            shlex.split(command), cwd=ROOT, check=True, capture_output=True, text=True, timeout=240
        ).stdout
    as_cli = re.sub(r"^\./train_(grpo|ppo)\.sh", r"openmanus-rl train --algorithm \1", command)
    for pattern, extra in RUN.items():
        if re.fullmatch(pattern, as_cli):
            words = shlex.split(as_cli)[1:]
            make_runs_exist(words)
            return run_cli(words if shows_output and "--policy" in words else words + extra, expect)
    if not any(re.fullmatch(pattern, command) for pattern in COVERED):
        pytest.fail(f"no test runs `{command}`: give it a place in RUN or COVERED of tests/docs/test_docs.py")
    return ""


def make_runs_exist(words: list[str]) -> None:
    """A page may speak of any run or checkpoint; the small run stands in for it, unless the command makes it."""
    named = [word for before, word in zip(["", *words], words, strict=False) if before != "--output"]
    for path in (Path(match[0]) for word in named if (match := re.search(r"\bruns/\S+", word))):
        run = Path(*path.parts[:2])
        if not run.exists():
            run.symlink_to(Path("runs/maze-grpo").resolve())
        if not path.exists():
            path.symlink_to(Path("runs/maze-grpo/checkpoints/step_000001").resolve())


@pytest.mark.parametrize("block", COMMAND_BLOCKS, ids=block_id)
def test_commands_shown_work_and_print_what_is_shown(inside, block):
    is_error = "openmanus-rl: error:" in (block.output or "")
    printed = [
        run_command(command, block.output is not None, 2 if is_error else 0)
        for command in block.commands
        if OURS.match(command)
    ]
    if block.output is not None:
        assert "".join(printed).splitlines() == block.output.splitlines()


@pytest.mark.parametrize("command", ["openmanus-rl fly --to moon", "./train_dpo.sh", "python scripts/new.py --fast"])
def test_a_command_that_nothing_runs_is_noticed(command):
    assert OURS.match(command)
    with pytest.raises(pytest.fail.Exception, match="no test runs"):
        run_command(command, shows_output=False, expect=0)


@pytest.mark.parametrize("test_id", sorted(set(COVERED.values())))
def test_the_test_that_covers_a_command_exists(test_id):
    path, _, name = test_id.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("block", CURL_BLOCKS, ids=block_id)
def test_requests_shown_are_answered_as_shown(maze_url, block):
    a_line_each = block.text.replace("curl -s", "curl -sS -w '\\n'")
    script = a_line_each.replace(f"http://127.0.0.1:{PORT}", maze_url)
    done = subprocess.run(["bash", "-euc", script], check=True, capture_output=True, text=True, timeout=240)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line]
    assert answers == [json.loads(line) for line in block.output.splitlines()]


@pytest.mark.parametrize("block", PYTHON_BLOCKS, ids=block_id)
def test_python_shown_runs_and_prints_what_is_shown(maze_url, inside, block):
    text = block.text.replace(f"http://127.0.0.1:{PORT}", maze_url)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, block.where, "exec"), {"__name__": "shown"})
    assert printed.getvalue() == (block.output or "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in links(page):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}, which is not there"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}: there is no such heading"


def test_every_page_can_be_reached_from_the_readme():
    reached, waiting = set(), [README]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        targets = {(page.parent / link.partition("#")[0]).resolve() for link in links(page)}
        waiting += [target for target in targets if target in PAGES and target not in reached]
    assert reached == set(PAGES)


def test_the_reference_of_keys_is_the_schemas():
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    remake = load_script("scripts/make_config_reference.py").with_reference
    assert remake(page) == page, "run: .venv/bin/python scripts/make_config_reference.py"


def test_the_engine_bench_runs(capsys):
    bench = load_script("bench/engine.py")
    bench.ALTERNATIONS, bench.EPISODES, bench.TURNS, bench.SAMPLED, bench.SINGLE_TURN_SAMPLED = 1, 2, 2, 2, 2
    bench.main()
    cases = [row for row in capsys.readouterr().out.splitlines() if row.endswith("x")]
    assert len(cases) == len(table(section(DOCS / "engine.md", "### How fast")))


def load_script(name: str):
    spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_metrics_that_are_written_and_metrics_that_are_described_are_the_same(workspace):
    lines = [
        json.loads(line)
        for run in ("maze-grpo", "maze-ppo")
        for line in (workspace / "runs" / run / "metrics.jsonl").read_text().splitlines()
    ]
    written = {name for line in lines for name in line} - {"step", "time"}
    rows = table(section(DOCS / "metrics.md", "## Every metric"))
    described = {re.sub(r"<\w+>", ".+", name) for row in rows for name in code(row[0])}
    assert not [name for name in written if not any(re.fullmatch(pattern, name) for pattern in described)]
    assert not [pattern for pattern in described if not any(re.fullmatch(pattern, name) for name in written)]


def test_the_files_of_a_run_are_those_described(workspace):
    rows = table((DOCS / "run-directory.md").read_text(encoding="utf-8"))
    described = {name.rstrip("/") for row in rows for name in code(row[0])}
    present = {path.name for path in (workspace / "runs/maze-grpo").iterdir()} - {".lock"}
    assert described == present


def test_the_summarys_keys_are_those_described(workspace):
    rows = table(section(DOCS / "run-directory.md", "## summary.json"))
    summary = json.loads((workspace / "runs/maze-grpo/summary.json").read_text())
    assert {key for row in rows for key in code(row[0])} == set(summary)


def test_stop_reasons_are_described_as_they_are():
    described = {
        reason: (sample == "yes", "critic" in value)
        for names, _, sample, value in table(section(DOCS / "algorithms.md", "## How an episode ends"))
        for reason in code(names)
    }
    assert described == {str(reason): (reason.is_sample, reason.bootstraps) for reason in StopReason}


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_every_option_of_a_world_is_described(name):
    page = DOCS / "worlds" / f"{name}.md"
    described = page.read_text(encoding="utf-8") if page.exists() else section(DOCS / "environments.md", f"### {name}")
    for option, parameter in inspect.signature(ENVIRONMENTS[name]).parameters.items():
        default = str(parameter.default).lower() if isinstance(parameter.default, bool) else parameter.default
        shown = f"`{option}`" if default is None else f"`{option}={default}`"
        assert shown in described


def test_the_sizes_of_splits_are_those_described():
    rows = {row[0].split(",")[0]: row[1:] for row in table(section(DOCS / "environments.md", "## Tasks and splits"))}
    for name in ("wordle", "textcraft"):
        sizes = [len(list(ENVIRONMENTS[name].item_ids(split))) for split in ("train", "validation", "test")]
        assert rows[name] == [str(size) for size in sizes]


@pytest.mark.parametrize(
    "name", ["babyai", "sciworld", "searchqa", "sqlgym", "textcraft", "todo", "weather", "webshop", "wordle"]
)
def test_the_sizes_of_splits_on_a_world_s_page_are_those_it_has(name):
    first = table(section(DOCS / "worlds" / f"{name}.md", "## Items and splits"))[0]
    sizes = [len(list(ENVIRONMENTS[name].item_ids(split))) for split in ("train", "validation", "test")]
    assert first[1:] == [str(size) for size in sizes]


@pytest.mark.parametrize(
    "words",
    [
        ["algorithm.loss=examples/soft_clip_loss.py:soft_clip"],
        ["algorithm.estimator=examples/leave_one_out.py:leave_one_out"],
    ],
    ids=["loss", "advantage"],
)
def test_an_algorithm_of_ones_own_updates_the_model(inside, words):
    """Also where the tiny model's groups are all alike, so that nothing is left out of the update."""
    from openmanus_rl.algorithms.registry import find_estimator

    name = words[0].partition("estimator=")[2] or "grpo"
    keeps_groups = find_estimator(name).credit == "episode"
    kept = ["algorithm.drop_zero_variance_groups=false"] if keeps_groups else []
    run_cli(["train", *TINY_RUN, *words, *kept, "trainer.runs_dir=own", f"trainer.name={name.rpartition(':')[2]}"])
    last = json.loads((inside / "own" / name.rpartition(":")[2] / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["actor/updated"] == 1
