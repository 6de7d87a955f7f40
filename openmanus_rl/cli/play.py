"""`openmanus-rl play`: be the agent yourself."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from openmanus_rl.cli.options import WorldName, WorldOptions, read_options
from openmanus_rl.envs.base import Environment, Task
from openmanus_rl.envs.registry import make_environment
from openmanus_rl.errors import UserError

if TYPE_CHECKING:
    from openmanus_rl.agent.templates import ActionTemplate
    from openmanus_rl.data.messages import Message
    from openmanus_rl.models.chat import ChatRenderer

ASK_EXPERT = "?"
SEARCH_SECONDS = 10.0
"""How long a task may be looked for."""


def play(
    name: WorldName = "maze",
    number: Annotated[int, typer.Option("--task", min=0, help="Which training task.")] = 0,
    options: WorldOptions = "{}",
    template: Annotated[
        str | None, typer.Option(help="Sit in for the agent: see its prompts, and answer as this action template says.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="With --template: show prompts as this model directory's chat template writes them."),
    ] = None,
) -> None:
    """Play a world by hand: one action a line, ? for the expert's, Ctrl-D to stop.

    With --template you see what an agent sees and answer as it would; an empty line ends an answer.
    """
    chosen = read_options(options)
    if model is not None and template is None:
        raise UserError("--model shows an agent's prompts, and --template is not given.", "Add --template react.")
    environment = make_environment(name, **chosen)
    try:
        item_id = _training_task(name, number, environment.item_ids("train", **chosen))
        if template is None:
            _play(environment, Task(name, item_id))
        else:
            _sit_in(environment, Task(name, item_id), template, model)
    finally:
        environment.close()


def _training_task(name: str, number: int, item_ids: Iterator[str]) -> str:
    """The item of that number. Some worlds have items without end, so the search for it has one."""
    give_up = time.monotonic() + SEARCH_SECONDS
    for index, item_id in enumerate(item_ids):
        if index == number:
            return item_id
        if time.monotonic() > give_up:
            raise UserError(
                f"{name} has at least {index + 1} training tasks; number {number} was not reached in"
                f" {SEARCH_SECONDS:g} s.",
                "Choose a smaller --task.",
            )
    raise UserError(f"{name} has no training task {number}.", "Tasks count from 0; choose a smaller --task.")


def _play(environment: Environment, task: Task) -> None:
    observation = environment.reset(task)
    typer.echo(f"{environment.instructions()}\n")
    episode_return = 0.0
    while True:
        _show(environment, observation.text)
        typer.echo("> ", nl=False)
        line = sys.stdin.readline()
        if not line:
            return _say_stopped(episode_return)
        action = line.strip()
        if action == ASK_EXPERT:
            typer.echo(f"the expert says: {environment.expert_action() or 'nothing, it knows no action here'}")
            continue
        result = environment.step(action)
        observation = result.observation
        episode_return += result.reward
        refused = f"; {result.info['invalid']}" if "invalid" in result.info else ""
        typer.echo(f"reward {result.reward:+.2f}{refused}")
        if result.done:
            _show(environment, observation.text)
            return _say_end(result.success, episode_return)


def _sit_in(environment: Environment, task: Task, template_name: str, model: str | None) -> None:
    """The agent's loop with a person in the model's place: the same prompts, the same reading of the answer."""
    from openmanus_rl.agent.templates import find_template

    template = find_template(template_name)
    prompts = _Prompts(template, model)
    observation = environment.reset(task)
    prompts.open(template.opening(environment.instructions(), observation.text))
    episode_return = 0.0
    while True:
        answer = _read_answer()
        if answer is None:
            return _say_stopped(episode_return)
        if answer.strip() == ASK_EXPERT:
            action = environment.expert_action()
            if action is None:
                typer.echo("the expert knows no action")
            else:
                typer.echo(f"the expert would write:\n{template.render(action, environment.expert_thought())}")
            continue
        end = template.answer_end(answer)
        parsed = template.read(answer[:end])
        if parsed.action is None:
            typer.echo(f"=> not readable: {parsed.invalid_reason}")
            prompts.append(template.complaint(parsed.invalid_reason or ""))
            continue
        result = environment.step(parsed.action)
        episode_return += result.reward
        typer.echo(f"=> read as {parsed.kind}: {parsed.action}\n=> reward {result.reward:+.2f}")
        if result.done:
            typer.echo(result.observation.text)
            return _say_end(result.success, episode_return)
        prompts.append(result.observation.text)


class _Prompts:
    """Shows what is new in the agent's prompt: as messages, or in the words of a model's chat template."""

    def __init__(self, template: "ActionTemplate", model: str | None) -> None:
        self._role = template.observation_role
        self._renderer = None if model is None else _renderer(model, template)

    def open(self, messages: "Sequence[Message]") -> None:
        if self._renderer is None:
            for message in messages:
                self._say(message["role"], message["content"])
        else:
            self._show(self._renderer, self._renderer.prompt_ids(messages))

    def append(self, observation: str) -> None:
        if self._renderer is None:
            self._say(self._role, observation)
        else:
            self._show(self._renderer, self._renderer.append_ids(False, observation))

    def _say(self, role: str, content: str) -> None:
        typer.echo(f"[{role}]\n{content}\n")

    def _show(self, renderer: "ChatRenderer", ids: Sequence[int]) -> None:
        typer.echo(f"{renderer.decode(ids)}\n=> {len(ids)} tokens")


def _renderer(model: str, template: "ActionTemplate") -> "ChatRenderer":
    from openmanus_rl.models.chat import ChatRenderer
    from openmanus_rl.models.load import load_tokenizer

    return ChatRenderer(load_tokenizer(model), observation_role=template.observation_role)


def _read_answer() -> str | None:
    """Lines up to an empty one; None where the input ends."""
    typer.echo("> ", nl=False)
    lines: list[str] = []
    for line in sys.stdin:
        if not line.strip():
            break
        lines.append(line.rstrip("\n"))
        if lines == [ASK_EXPERT]:
            break
    return "\n".join(lines) if lines else None


def _show(environment: Environment, observation: str) -> None:
    """The picture, and what is seen where the picture does not hold it already."""
    picture = environment.render()
    typer.echo(picture if observation in picture else f"{picture}\n{observation}".lstrip("\n"))


def _say_stopped(episode_return: float) -> None:
    typer.echo(f"\nstopped, return {episode_return:+.2f}")


def _say_end(success: bool, episode_return: float) -> None:
    typer.echo(f"{'success' if success else 'no success'}, return {episode_return:+.2f}")
