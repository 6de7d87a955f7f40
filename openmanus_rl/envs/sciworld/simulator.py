"""One ScienceWorld simulator: a Java process, and the few calls that a step needs.

The Python package's own `step` also lists every valid action, looks around, takes stock and keeps a history, which
takes many times as long as the step; here the simulator's own step is called. The simulator's chance and its objects'
numbers are global in its process, so one process plays one episode at a time.
"""

import importlib
import importlib.util
import logging
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from openmanus_rl.envs.sciworld.tasks import ScienceTask
from openmanus_rl.errors import UserError

T = TypeVar("T")

INSTALL = "Install it with: openmanus-rl env install sciworld"
INSTALL_JAVA = "Install it with: apt-get update && apt-get install -y default-jre-headless"

HEAP_MEGABYTES = 256
READ_SECONDS = 25
"""A simulator that does not answer for so long is given up; shorter than a server waits for a step."""

_JAVA_OPTIONS = (
    f"-Xmx{HEAP_MEGABYTES}m",
    "-Xss4m",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:hashCode=2",
)
"""One small process among many on few cores: no parallel collector. All objects have the same hash code, so that the
simulator, which keeps things in hash sets, always names them in the same order: by default that depends on what the
process did before."""

_TIMELESS = ("task", "help", "objects")
"""Questions that are answered beside the simulation."""

logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)  # what fails there is told here, as `SimulatorFailed`


class SimulatorFailed(RuntimeError):
    """The simulator ended, hung or ran into an error of its own."""


@dataclass(frozen=True)
class Answer:
    """What a step led to. The score is in points: 100 for the whole task, -100 for one that can no longer be done."""

    text: str
    score: int = 0
    completed: bool = False


def check_requirements() -> None:
    """Say what is missing before anything is started."""
    if importlib.util.find_spec("scienceworld") is None or importlib.util.find_spec("py4j") is None:
        raise UserError("sciworld needs the package scienceworld, which is not installed here.", INSTALL)
    if java() is None:
        raise UserError("sciworld needs Java, which is not installed here.", INSTALL_JAVA)


def java() -> str | None:
    """The Java to use: JAVA_HOME's, or the one on the path."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


class Simulator:
    """A Java process with ScienceWorld in it. It ends when this process does, however that ends.

    Its standard input is a pipe from here: when that closes, the process ends itself.
    """

    def __init__(self, read_seconds: int = READ_SECONDS) -> None:
        check_requirements()
        gateway: Any = importlib.import_module("py4j.java_gateway")
        self.episodes = 0
        self._last = Answer("")
        self._agent: Any = None
        server = ["py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
        self._process = subprocess.Popen(
            [str(java()), *_JAVA_OPTIONS, "-cp", _class_path(gateway), *server],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_package(),
            start_new_session=True,
        )
        self._interface = self._trying("the start", lambda: self._connect(gateway, read_seconds))

    def _connect(self, gateway: Any, read_seconds: int) -> Any:
        """The simulator's interface. What it prints goes nowhere: nobody reads the pipe once the port is known."""
        assert self._process.stdout is not None
        port, token = self._process.stdout.readline(), self._process.stdout.readline()
        parameters = gateway.GatewayParameters(
            port=int(port),
            auth_token=token.decode().strip(),
            read_timeout=read_seconds,
            enable_memory_management=False,  # `_released` does it
        )
        self._gateway = gateway.JavaGateway(gateway_parameters=parameters)
        jvm = self._gateway.jvm
        jvm.java.lang.System.setOut(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))
        return jvm.scienceworld.runtime.pythonapi.PythonInterface()

    def load(self, task: ScienceTask, simplifications: str = "", *, gold: bool = False) -> None:
        """Set up a task from its beginning; with `gold`, work out a way to do it, which takes a whole episode."""
        self.episodes += 1
        self._last = Answer("")
        self._trying("load", lambda: self._interface.load(task.name, task.variation, simplifications, gold))
        self._agent = self._trying("load", self._new_agent)

    def step(self, action: str) -> Answer:
        """Act, or ask one of the questions that take no time."""
        if action.strip().lower() in _TIMELESS:
            return Answer(self.said("step", action), self._last.score, self._last.completed)
        triple = self._trying("step", lambda: self._released(self._agent.step(action), str))
        text, points, completed = triple.removeprefix("(").removesuffix(")").rsplit(",", 2)
        score = round(100 * float(points))
        if score < 0 and self._trying("step", self._agent.isInErrorState):
            self.kill()
            raise SimulatorFailed("the simulator ran into an error of its own")
        self._last = Answer(text or "Unknown action.", score, completed == "true" or score < 0)
        return self._last

    def said(self, method: str, *arguments: str) -> str:
        """The text that one of the interface's methods answers."""
        return self._trying(method, lambda: str(getattr(self._interface, method)(*arguments)))

    def listed(self, method: str) -> list[str]:
        """The list that one of the interface's methods answers."""
        return self._trying(method, lambda: self._released(getattr(self._interface, method)(), _strings))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def memory_bytes(self) -> int:
        """What the process occupies; 0 if it has ended."""
        if self._process.poll() is not None:
            return 0
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        """End the process now; twice is fine."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _new_agent(self) -> Any:
        """What acts in the task that was loaded last."""
        if self._agent is not None:
            self._gateway.detach(self._agent)
        return self._released(self._interface.agentInterface(), lambda option: option.get())

    def _released(self, thing: Any, read: Callable[[Any], T]) -> T:
        """What `read` makes of a Java object, which is then let go.

        py4j would let it go when Python's collector finds it: thousands in one go, of all simulators, with a call to
        Java for each, on whichever thread that comes about, be it the event loop's.
        """
        found = read(thing)
        self._gateway.detach(thing)
        return found

    def _trying(self, what: str, call: Callable[[], T]) -> T:
        """The call's answer. After a failed one the process is not to be trusted, and ends."""
        try:
            return call()
        except Exception as error:
            self.kill()
            raise SimulatorFailed(f"the simulator failed in {what}: {type(error).__name__}: {error}") from error


def _strings(java_list: Any) -> list[str]:
    return [str(element) for element in java_list]


def _package() -> Path:
    """Where the package is. The simulator writes a table of its objects to where it runs; there it is already."""
    package = importlib.util.find_spec("scienceworld")
    assert package is not None
    assert package.submodule_search_locations is not None
    return Path(package.submodule_search_locations[0])


def _class_path(gateway: Any) -> str:
    return os.pathsep.join([gateway.find_jar_path(), str(_package() / "scienceworld.jar")])
