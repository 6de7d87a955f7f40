"""A world that runs in another Python, of a virtualenv of its own, and is played from here as if it were here.

Both ends are this package, so calls and answers are pickled over the child's standard input and output.
"""

import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import IO, Any

from openmanus_rl.envs.base import Environment, Observation, Split, StepResult, Task

STATED = (
    "name",
    "grammar",
    "success_rule",
    "score_range",
    "requirements",
    "sessions_at_once",
    "expert_seconds",
)
"""What a world says of itself; some of it may depend on its options."""


class DistantWorld(Environment):
    """Passes every call on. `distant_world` makes one, with the name and the rules of the world it stands for."""

    world: type[Environment]

    def __init__(self, command: list[str], options: Mapping[str, Any]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        vars(self).update(self._ask("build", dict(options)))

    @classmethod
    def item_ids(cls, split: Split, **options: Any) -> Iterator[str]:
        return cls.world.item_ids(split, **options)

    def instructions(self) -> str:
        return str(self._ask("instructions"))

    def reset(self, task: Task) -> Observation:
        observation: Observation = self._ask("reset", task)
        return observation

    def step(self, action: str) -> StepResult:
        result: StepResult = self._ask("step", action)
        return result

    def state_key(self) -> str | None:
        key: str | None = self._ask("state_key")
        return key

    def difficulty(self) -> str | None:
        difficulty: str | None = self._ask("difficulty")
        return difficulty

    def expert_action(self) -> str | None:
        action: str | None = self._ask("expert_action")
        return action

    def expert_thought(self) -> str | None:
        thought: str | None = self._ask("expert_thought")
        return thought

    def random_action(self, uniform: float) -> str:
        return str(self._ask("random_action", uniform))

    def snapshot(self) -> Any:
        return self._ask("snapshot")

    def restore(self, snapshot: Any) -> None:
        self._ask("restore", snapshot)

    def render(self) -> str:
        return str(self._ask("render"))

    def close(self) -> None:
        """End the other process, which closes the world."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def _ask(self, method: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            _write(self._process.stdin, (method, arguments))
            fine, answer = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError) as error:
            raise RuntimeError(f"the process of {self.name} ended with code {self._process.wait()}") from error
        if not fine:
            raise answer
        return answer


def distant_world(world: type[Environment], spec: str, python: str, options: Mapping[str, Any]) -> Environment:
    """The world built with its options in another Python, where `spec` names it."""
    stated = {name: getattr(world, name) for name in STATED}
    kind = type(f"Distant{world.__name__}", (DistantWorld,), {"world": world, **stated})
    program = "import sys; from openmanus_rl.envs.distant import main; main(sys.argv[1])"
    distant: Environment = kind([python, "-c", program, spec], options)
    return distant


def main(spec: str) -> None:
    """The other end: build the world, answer calls until the parent closes the pipe."""
    from openmanus_rl.envs.registry import environment_class  # imports this module

    calls, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what a world prints is no answer
    world: Environment | None = None
    answer: tuple[bool, Any]
    while True:
        try:
            method, arguments = pickle.load(calls)
        except EOFError:
            break
        try:
            if method == "build":
                world = environment_class(spec)(**arguments[0])
                answer = True, {name: getattr(world, name) for name in STATED}
            else:
                answer = True, getattr(world, method)(*arguments)
        except Exception as error:  # noqa: BLE001 - raised again at the other end
            answer = False, _loadable(error)
        _write(answers, answer)
    if world is not None:
        world.close()


def _loadable(error: Exception) -> Exception:
    """The error, or its text where its class may be one of a package that only this Python has."""
    known = type(error).__module__.partition(".")[0] in ("builtins", "openmanus_rl")
    return error if known else RuntimeError(f"{type(error).__name__}: {error}")


def _write(pipe: IO[bytes], message: Any) -> None:
    pipe.write(pickle.dumps(message))
    pipe.flush()
