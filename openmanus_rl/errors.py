"""The one exception that is shown to a user without a stack trace, and what its text is made of."""

import difflib
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class UserError(Exception):
    """A mistake the user can mend: `what` went wrong and where; `hint` says what to do about it."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what}\n    {hint}" if hint else what)
        self.what = what
        self.hint = hint

    def __reduce__(self) -> tuple[type["UserError"], tuple[str, str]]:
        """So that it comes out of another process with both its parts."""
        return type(self), (self.what, self.hint)


def raised_at(error: BaseException, file: str = "") -> str:
    """Where an error came from: the last line that was run, or the last in `file` where there is one."""
    frames = traceback.extract_tb(error.__traceback__)
    frame = ([frame for frame in frames if frame.filename == file] or frames)[-1]
    return f"In {frame.name}, {frame.filename}:{frame.lineno}."


def is_own(function: Callable[..., Any]) -> bool:
    """Whether a function is a user's and not one of ours."""
    return not getattr(function, "__module__", "").startswith("openmanus_rl.")


@contextmanager
def blamed_on(what: str, function: Callable[..., Any]) -> Iterator[None]:
    """An error in a user's own `function` becomes one that names `what` and the line; ours keep their trace."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if not is_own(function):
            raise
        code = getattr(function, "__code__", None)
        where = raised_at(error, code.co_filename if code else "")
        raise UserError(f"{what} raised {type(error).__name__}: {error}", where) from error


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """`Did you mean X?` for the closest known name, else the list of what is known."""
    names = sorted(known)
    return close_name(wrong, names) or f"Known: {', '.join(names)}."


def close_name(wrong: str, known: Iterable[str]) -> str:
    """`Did you mean X?` for the closest known name; nothing where none is close."""
    close = difflib.get_close_matches(wrong, sorted(known), n=1, cutoff=0.6)
    return f"Did you mean {close[0]}?" if close else ""
