"""The names and signatures that users know from the development guide, and the page that lists them."""

import ast
import importlib
import inspect

import pytest
from doc_pages import DOCS, ROOT, code, section, table

from openmanus_rl.config.schema import RunConfig

AGENT = "openmanus_rl.agent.openmanus:OpenManusAgent"
TRAINER = "openmanus_rl.trainer.ppo:RayPPOTrainer"

PROMISED = {
    "openmanus_rl.protocol:DataProto": None,
    TRAINER: None,
    f"{TRAINER}.init_workers": "(self)",
    f"{TRAINER}.fit": "(self)",
    f"{TRAINER}._validate": "(self)",
    f"{TRAINER}._save_checkpoint": "(self)",
    "openmanus_rl.distributed.worker_group:WorkerGroup": None,
    "openmanus_rl.algorithms.core_algos:apply_kl_penalty": "(batch, controller, kind)",
    "openmanus_rl.algorithms.core_algos:compute_advantage": None,
    "openmanus_rl.agent.openmanus:AgentConfig": None,
    AGENT: None,
    "openmanus_rl.agent.openmanus:ENV_TO_TASK_CLASS": None,
    f"{AGENT}.run_llm_loop": "(self, gen_batch, output_dir=None, global_steps=0)",
    f"{AGENT}._run_single_rollout": "(self, initial_prompt_ids, task_idx)",
    f"{AGENT}._convert_rollout_results_to_dataproto": "(self, results, original_batch)",
    f"{AGENT}.postprocess_predictions": "(self, predictions)",
    "openmanus_rl.agent.templates:create_react_prompt": "(task_description, tool_manager)",
    "openmanus_rl.rewards:SUPPORTED_REWARD_SCORE_FNS": None,
    "openmanus_rl.rewards:compute_score": "(solution_str, ground_truth, **kwargs)",
    "openmanus_rl.config.schema:AlgorithmConfig": None,
    "openmanus_rl.data.tasks:tasks_path": None,
}
"""Where each name lives, and the parameters that callers rely on."""

ROWS = {code(row[2])[0]: row for row in table(section(DOCS / "guide.md", "## The table")) if code(row[2])}


def resolve(path: str):
    module, _, names = path.partition(":")
    found = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    return found


def parameters(signature: str) -> dict[str, object]:
    """Names and defaults; `**kwargs` is written with its stars."""
    arguments = ast.parse(f"def f{signature}: pass").body[0].args
    defaults = [inspect.Parameter.empty] * (len(arguments.args) - len(arguments.defaults))
    defaults += [ast.literal_eval(default) for default in arguments.defaults]
    named = dict(zip((argument.arg for argument in arguments.args), defaults, strict=True))
    return named | ({f"**{arguments.kwarg.arg}": inspect.Parameter.empty} if arguments.kwarg else {})


@pytest.mark.parametrize("path", PROMISED)
def test_a_name_of_the_guide_is_there_and_can_be_called_as_it_says(path):
    found = resolve(path)
    if PROMISED[path] is None:
        return
    actual = inspect.signature(found).parameters
    for name, default in parameters(PROMISED[path]).items():
        assert name.lstrip("*") in actual, f"{path} takes no {name}"
        if default is not inspect.Parameter.empty:
            assert actual[name].default == default
    extra = [p for name, p in actual.items() if name not in parameters(PROMISED[path]) and p.kind != p.VAR_KEYWORD]
    assert all(p.default is not p.empty for p in extra), f"{path} wants more than the guide says"


def test_the_page_lists_every_promised_name_in_its_place():
    assert set(ROWS) == set(PROMISED)


@pytest.mark.parametrize("path", [path for path, signature in PROMISED.items() if signature])
def test_the_page_shows_the_signature(path):
    shown = code(ROWS[path][0])[0]
    name, _, rest = shown.partition("(")
    assert name == path.rpartition(":")[2].rpartition(".")[2]
    assert parameters(f"({rest}") == parameters(PROMISED[path])


def test_the_scripts_of_the_guide_stand_at_the_root():
    for name in ("train_ppo.sh", "train_grpo.sh"):
        assert (ROOT / name).is_file()
        assert f"`{name}`" in (DOCS / "guide.md").read_text()


def test_the_reward_is_chosen_by_the_guides_key():
    assert RunConfig().algorithm.reward_score_fn == "agentgym"
