"""Virtualenvs of worlds that need packages of their own: `.cache/envs/<name>` beneath the present directory.

A family with a `requirements.txt` in its package is installed by `install`: a virtualenv with those packages, those
that serving needs, and this package, but no torch. `python_for` is the Python that can run a world; servers start with
it, and a world that runs only there is played from here as a `DistantWorld`.
"""

import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import openmanus_rl
from openmanus_rl.envs.base import Environment
from openmanus_rl.errors import UserError

HOME = Path(".cache") / "envs"
READY = "ready"
"""The file that is written last: an installation without it broke off."""


def install(world: type[Environment], tell: Callable[[str], None], serving: Sequence[str] | None = None) -> None:
    """Make the virtualenv of a world anew. `serving` are the packages that a server needs; unset: all of them."""
    listed = requirements_of(world)
    if listed is None:
        raise UserError(
            f"{world.name} needs nothing beside this package.", f"Serve it with: openmanus-rl env serve {world.name}"
        )
    place = HOME / world.name
    shutil.rmtree(place, ignore_errors=True)
    tell(f"a virtualenv in {place}")
    _run([sys.executable, "-m", "venv", "--without-pip", str(place)])
    chosen = serving_packages() if serving is None else serving
    tell(f"packages: {', '.join([*listed.read_text(encoding='utf-8').split(), *chosen])}")
    pip = [sys.executable, "-m", "pip", "--python", _python(place), "install", "--quiet"]
    try:
        _run([*pip, "--requirement", str(listed), *chosen])
    except UserError as error:
        _tell_of_missing_compilers(world, error)
        raise
    _lend_this_package(place)
    (place / READY).touch()


def python_for(world: type[Environment]) -> str:
    """The Python that runs a world: this one, or that of its virtualenv where this one lacks something."""
    place = HOME / world.name
    return _python(place) if lacks_something(world) and (place / READY).exists() else sys.executable


def lacks_something(world: type[Environment]) -> bool:
    """Whether some package that the world may need cannot be imported here."""
    return any(importlib.util.find_spec(module) is None for module in world.requirements)


def requirements_of(world: type[Environment]) -> Path | None:
    """The pinned packages of a world's family, or None if it has none."""
    file = sys.modules[world.__module__].__file__
    path = Path(file).parent / "requirements.txt" if file else None
    return path if path is not None and path.is_file() else None


def serving_packages() -> list[str]:
    """What this package needs for worlds and their service, in the versions that are installed here."""
    needed = [line for line in metadata.requires("openmanus-rl") or [] if "extra ==" not in line]
    names = [match[0] for line in needed if (match := re.match(r"[\w.-]+", line))]
    return [f"{name}=={metadata.version(name)}" for name in names]


def _tell_of_missing_compilers(world: type[Environment], error: UserError) -> None:
    missing = [command for command in world.compilers if shutil.which(command) is None]
    if missing:
        raise UserError(
            f"{world.name} has packages that are compiled, and here is no {' and no '.join(missing)}.",
            f"Install them with: apt-get update && apt-get install -y {' '.join(missing)}",
        ) from error


def _lend_this_package(place: Path) -> None:
    """Make `openmanus_rl`, and nothing else from around it, importable in the virtualenv."""
    shelf = place / "package"
    shelf.mkdir()
    (shelf / "openmanus_rl").symlink_to(Path(openmanus_rl.__file__).resolve().parent)
    site = sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)})
    (Path(site) / "openmanus_rl.pth").write_text(f"{shelf.absolute()}\n", encoding="utf-8")


def _python(place: Path) -> str:
    return str((place / "bin" / "python").absolute())


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        telling = [line for line in said if "error" in line.lower() and not line.strip().startswith("note:")]
        raise UserError(f"`{' '.join(command)}` failed:", "\n    ".join((telling or said)[-3:]))
