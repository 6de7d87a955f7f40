"""`env install`: a world whose package is missing here runs in its virtualenv, and is played from here."""

import sys
import textwrap
import zipfile

import pytest
from typer.testing import CliRunner

from openmanus_rl.cli.main import app
from openmanus_rl.envs import ENVIRONMENTS
from openmanus_rl.envs import install as installing
from openmanus_rl.envs.base import EpisodeOver, Task
from openmanus_rl.envs.distant import distant_world
from openmanus_rl.envs.install import install, lacks_something, python_for, requirements_of, serving_packages
from openmanus_rl.envs.maze import Maze
from openmanus_rl.envs.registry import python_of
from openmanus_rl.errors import UserError
from openmanus_rl.registry import load_object

WORLD = """
    import importlib

    from openmanus_rl.envs.maze import Maze


    class Faraway(Maze):
        name = "faraway"
        requirements = ("a_tiny_package_of_ours",)

        def render(self):
            print("chatter that is no answer")
            return importlib.import_module("a_tiny_package_of_ours").GREETING

        def difficulty(self):
            raise importlib.import_module("a_tiny_package_of_ours").Trouble("the planner gave up")
"""


@pytest.fixture(scope="module")
def faraway(tmp_path_factory):
    """A world in a family of its own, installed for real; what it needs is a wheel made here, so nothing is fetched."""
    place = tmp_path_factory.mktemp("faraway")
    wheel = place / "a_tiny_package_of_ours-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "a_tiny_package_of_ours.py", "GREETING = 'hello from over there'\nclass Trouble(Exception): pass\n"
        )
        about = "a_tiny_package_of_ours-1.0.dist-info"
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: a-tiny-package-of-ours\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    (place / "requirements.txt").write_text(f"{wheel}\n")
    (place / "faraway_world.py").write_text(textwrap.dedent(WORLD))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(installing, "HOME", place / "envs")
        patch.setenv("PIP_NO_INDEX", "1")
        spec = f"{place / 'faraway_world.py'}:Faraway"
        world = load_object(spec, "environment")
        told = []
        install(world, told.append, serving=())
        assert "a virtualenv" in told[0]
        yield world, spec


@pytest.fixture
def played(faraway):
    world, spec = faraway
    distant = distant_world(world, spec, python_for(world), {"size": 3})
    yield distant
    distant.close()


def test_the_virtualenvs_python_is_used_where_this_one_lacks_the_package(faraway):
    world, _ = faraway
    assert lacks_something(world)
    assert python_for(world) != sys.executable
    assert str(installing.HOME) in python_for(world)
    assert python_for(Maze) == python_of("maze") == sys.executable


class _Asked(Exception):
    """Raised in place of starting a world in a virtualenv."""


def _raise(*given, **_):
    raise _Asked(given)


@pytest.mark.parametrize("words", [["play", "faraway"], ["env", "record", "faraway", "tape.jsonl", "--port", "0"]])
def test_commands_use_a_worlds_virtualenv(faraway, monkeypatch, tmp_path, words):
    world, _ = faraway
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(vars(ENVIRONMENTS)["_entries"], "faraway", world)
    monkeypatch.setattr("openmanus_rl.envs.registry.distant_world", _raise)
    monkeypatch.setattr("openmanus_rl.cli.env.launch_servers", _raise)
    with pytest.raises(_Asked):
        CliRunner().invoke(app, words, catch_exceptions=False)


def test_an_installation_that_broke_off_is_not_used(faraway, monkeypatch):
    world, _ = faraway
    monkeypatch.setattr(installing, "READY", "never-written")
    assert python_for(world) == sys.executable


def test_a_world_over_there_is_played_as_if_it_were_here(played):
    here = Maze(size=3)
    task = Task("faraway", "faraway_7")
    assert (played.name, played.grammar, played.score_range) == ("faraway", Maze.grammar, Maze.score_range)
    assert played.reset(task) == here.reset(Task("maze", "maze_7"))
    assert played.render() == "hello from over there"
    assert next(played.item_ids("test", size=3)).startswith("faraway_")
    assert played.instructions() == here.instructions()
    assert played.random_action(0.3) == here.random_action(0.3)
    saved = played.snapshot()
    done = False
    while not done:
        action = played.expert_action()
        assert action == here.expert_action()
        result = played.step(action)
        assert result == here.step(action)
        assert played.state_key() == here.state_key()
        done = result.done
    with pytest.raises(EpisodeOver):
        played.step("up")
    played.restore(saved)
    assert not played.step("up").done


def test_a_mistake_over_there_is_the_users_mistake_here(faraway, played):
    world, spec = faraway
    with pytest.raises(UserError, match="faraway_<n>"):
        played.reset(Task("faraway", "nonsense"))
    with pytest.raises(UserError, match="size"):
        distant_world(world, spec, python_for(world), {"size": 1})


def test_an_error_of_a_package_that_is_only_over_there_is_told_here_and_play_goes_on(played):
    with pytest.raises(RuntimeError, match="Trouble: the planner gave up"):
        played.difficulty()
    assert played.reset(Task("faraway", "faraway_7")) == Maze(size=3).reset(Task("maze", "maze_7"))


def test_closing_ends_the_other_process_and_twice_is_fine(faraway):
    world, spec = faraway
    distant = distant_world(world, spec, python_for(world), {})
    distant.close()
    distant.close()
    assert distant._process.returncode == 0


def test_a_world_that_needs_nothing_is_not_installed():
    assert requirements_of(Maze) is None
    with pytest.raises(UserError, match="needs nothing"):
        install(Maze, print)


def test_a_failed_installation_tells_why_and_is_not_used(tmp_path, monkeypatch):
    (tmp_path / "requirements.txt").write_text(f"{tmp_path / 'missing.whl'}\n")
    (tmp_path / "broken_world.py").write_text(textwrap.dedent(WORLD).replace("faraway", "broken"))
    monkeypatch.setattr(installing, "HOME", tmp_path / "envs")
    world = load_object(f"{tmp_path / 'broken_world.py'}:Faraway", "environment")
    with pytest.raises(UserError, match=r"missing\.whl"):
        install(world, lambda _: None, serving=())
    assert python_for(world) == sys.executable
    world.compilers = ("no-such-compiler", "sh")
    with pytest.raises(UserError, match=r"here is no no-such-compiler.\n.*apt-get install -y no-such-compiler$"):
        install(world, lambda _: None, serving=())


def test_what_serving_needs_is_pinned_to_what_is_installed_here():
    packages = serving_packages()
    assert any(package.startswith("starlette==") for package in packages)
    assert not any(package.startswith(("torch", "ray", "pytest")) for package in packages)
