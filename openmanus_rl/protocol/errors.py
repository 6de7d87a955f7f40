"""What is raised when columns do not fit together."""

from collections.abc import Iterable

from openmanus_rl.errors import did_you_mean


class DataProtoError(ValueError, AssertionError):
    """Columns that do not fit: the message names the key and both lengths, shapes or values.

    It is the calling code's mistake, so it keeps its stack trace. Code written for verl expects an AssertionError.
    """


def require_keys(keys: Iterable[str], known: Iterable[str], where: str) -> None:
    """Refuse the first of `keys` that is not `known`."""
    names = list(known)
    for key in keys:
        if key not in names:
            raise DataProtoError(f"{where} has no key {key!r}. {did_you_mean(key, names)}")
