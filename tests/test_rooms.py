"""The rooms can be entered alone: the worlds without torch, the package without anything."""

import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory):
    """The Python of a virtualenv that holds this package and its base dependencies, and nothing else."""
    bare = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    (site_packages,) = bare.glob("lib/python*/site-packages")
    for package in base_dependencies():
        for name in top_level_names(package):
            link = site_packages / name
            if not link.exists():
                link.symlink_to(package.locate_file(name))
    (site_packages / "openmanus_rl").symlink_to(ROOT / "openmanus_rl")
    return bare / "bin" / "python"


def base_dependencies() -> list[Distribution]:
    """What `pip install .` without extras brings, from what is installed here."""
    waiting = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    found: dict[str, Distribution] = {}
    while waiting:
        requirement = Requirement(waiting.pop())
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and requirement.name not in found:
            found[requirement.name] = distribution(requirement.name)
            waiting += found[requirement.name].requires or []
    return list(found.values())


def top_level_names(package: Distribution) -> set[str]:
    return {path.parts[0] for path in package.files or []} - {"..", "__pycache__"}


def run(python, code):
    return subprocess.run([python, "-I", "-c", code], capture_output=True, text=True)


def test_the_bare_virtualenv_has_no_torch_and_no_numpy(bare_python):
    for name in ("torch", "transformers", "numpy"):
        assert f"No module named '{name}'" in run(bare_python, f"import {name}").stderr


@pytest.mark.parametrize(("room", "module"), [("envs", "base"), ("viewer", "app")])
def test_every_module_of_the_worlds_and_of_the_page_imports_where_torch_is_not_installed(bare_python, room, module):
    result = run(
        bare_python,
        f"import importlib, pkgutil, openmanus_rl.{room} as room\n"
        f"for module in pkgutil.walk_packages(room.__path__, 'openmanus_rl.{room}.'):\n"
        "    if not module.name.endswith('__main__'):\n"
        "        print(importlib.import_module(module.name).__name__)",
    )
    assert result.returncode == 0, result.stderr
    assert f"openmanus_rl.{room}.{module}" in result.stdout.split()


def test_importing_the_package_imports_nothing_of_others():
    result = run(
        sys.executable,
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules)\n"
        "import openmanus_rl; print(*(set(sys.modules) - before))",
    )
    assert result.stdout.split() == ["openmanus_rl"], result.stderr
