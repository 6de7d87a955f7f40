"""A stand-in for TextWorld's engine with the interface that published games are played through: one mug, two places.

It understands putting down in one wording only, as a game file does; `loc` arrivals are ALFWorld 0.3's.
"""

from types import ModuleType, SimpleNamespace


class Engine:
    def __init__(self, put: str) -> None:
        self._put = put
        self._entity_infos = {name: SimpleNamespace(name=name) for name in ("mug_bar_1", "desk_bar_1", "shelf_bar_1")}
        self._pddl_state = SimpleNamespace(replan=lambda infos: ["go to desk 1", "take mug 1 from desk 1"])
        self.loaded: list[str] = []

    def load(self, path: str) -> None:
        self.loaded.append(path)

    def reset(self) -> dict:
        self._holding = False
        names = sorted(info.name for info in self._entity_infos.values())
        return self._state(f"-= Welcome =-\n\nYou see {', '.join(names)}.\n\nYour task is to: put a mug in shelf.")

    def step(self, command: str) -> tuple[dict, int, bool]:
        told = "Nothing happens."
        won = False
        if command in self._commands():
            told = {"go to desk 1": "You arrive at loc 7. On the desk 1, you see a mug 1."}.get(
                command, f"done: {command}"
            )
            won = command == self._put
            self._holding = command == "take mug 1 from desk 1"
        return self._state(told, won), int(won), won

    def close(self) -> None:
        pass

    def _commands(self) -> list[str]:
        return ["go to desk 1", "look", self._put if self._holding else "take mug 1 from desk 1"]

    def _state(self, told: str, won: bool = False) -> dict:
        return {"feedback": told, "won": won, "admissible_commands": self._commands()}


def textworld_with(put: str, engines: list[Engine]) -> dict[str, ModuleType]:
    """The modules by name; every engine that is made goes into `engines`."""

    def make(asked: dict) -> Engine:
        engines.append(Engine(put))
        return engines[-1]

    textworld, envs = ModuleType("textworld"), ModuleType("textworld.envs")
    textworld.EnvInfos = lambda **asked: asked
    envs.PddlEnv = make
    return {module.__name__: module for module in (textworld, envs)}
