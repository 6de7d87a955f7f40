"""With what a run was made: Python, packages, machine and the commit of this code."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import openmanus_rl

_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "tensordict", "numpy", "pyarrow", "pydantic")
_GIT_SECONDS = 5


def describe_versions() -> dict[str, Any]:
    """Everything that may change a result beside the config."""
    return {
        "openmanus_rl": openmanus_rl.__version__,
        "git": describe_commit(Path(openmanus_rl.__file__).parent.parent),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
    }


def describe_commit(root: Path) -> dict[str, Any] | None:
    """The commit checked out at `root` and whether files differ from it; None if `root` is no repository's root."""
    if not (root / ".git").exists():
        return None
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "changed": bool(_git(root, "status", "--porcelain"))}


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=_GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
