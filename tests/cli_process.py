"""The command line in a process of its own, without waiting seconds for torch each time.

A fork server imports what the verbs import, once; each call is a fresh process forked from it.
"""

import faulthandler
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

# A process may be forked safely only while it has one thread; pyarrow's allocator would start another.
os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "openmanus_rl.cli.main",
        "openmanus_rl.trainer.run",
        "openmanus_rl.trainer.standalone",
        "transformers.models.llama.modeling_llama",
        "torch.utils.tensorboard",
    ]
)


class Result(NamedTuple):
    code: int
    out: str
    err: str


class CliProcess:
    """`openmanus-rl …`, running; `prepare` is called in its process before."""

    def __init__(
        self, arguments: Sequence[str], home: Path, stdin: str = "", prepare: Callable[[], None] | None = None
    ) -> None:
        self.arguments = arguments
        home.mkdir(parents=True, exist_ok=True)
        number = len(list(home.glob("*.out")))
        self._out, self._err = home / f"{number}.out", home / f"{number}.err"
        given = home / f"{number}.in"
        given.write_text(stdin)
        call = (list(arguments), str(given), str(self._out), str(self._err), os.getcwd(), prepare)
        self.process: BaseProcess = _FORKS.Process(target=_run, args=call)
        self.process.start()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def out(self) -> str:
        """What it has printed so far."""
        return self._out.read_text() if self._out.exists() else ""

    @property
    def err(self) -> str:
        return self._err.read_text() if self._err.exists() else ""

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = 240) -> Result:
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"still running after {seconds} s"
        return Result(self.process.exitcode, self.out, self.err)

    def end(self) -> None:
        """Kill it if it still runs, after it has said where it is."""
        if self.process.exitcode is None:
            self.send(signal.SIGUSR1)
            self.process.join(2)
            self.process.kill()
            self.process.join()


def _run(
    arguments: list[str], stdin: str, out: str, err: str, directory: str, prepare: Callable[[], None] | None
) -> None:
    """In the new process: take the files for the standard streams, then be the command."""
    for descriptor, path, flags in ((0, stdin, os.O_RDONLY), (1, out, _WRITE), (2, err, _WRITE)):
        opened = os.open(path, flags)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - multiprocessing has put /dev/null in its place
    os.chdir(directory)
    os.setpgid(0, 0)
    faulthandler.register(signal.SIGUSR1)
    sys.argv = ["openmanus-rl", *arguments]
    if prepare is not None:
        prepare()
    from openmanus_rl.cli.main import main

    main()


_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
