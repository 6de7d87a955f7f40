"""A file that grows: what is new since the last look, and whether it was replaced in between."""

import os
from pathlib import Path


class Tail:
    """Whole lines of a file as they are written. A line that is not finished waits for its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.has_unfinished = False
        """Whether there was half a line after the whole ones at the last look."""
        self._inode = -1
        self._offset = 0

    def new_lines(self) -> tuple[bool, list[bytes]]:
        """Whether the file is another one now, so that all that was read is void; and the lines after what was read."""
        self.has_unfinished = False
        try:
            file = self.path.open("rb")
        except OSError:  # not there yet, or no longer
            was_there, self._inode, self._offset = self._offset > 0, -1, 0
            return was_there, []
        with file:
            status = os.fstat(file.fileno())
            replaced = self._inode >= 0 and (status.st_ino != self._inode or status.st_size < self._offset)
            if replaced:
                self._offset = 0
            self._inode = status.st_ino
            if status.st_size == self._offset:
                return replaced, []
            file.seek(self._offset)
            whole, newline, rest = file.read(status.st_size - self._offset).rpartition(b"\n")
        self.has_unfinished = bool(rest)
        if not newline:
            return replaced, []
        self._offset += len(whole) + 1
        return replaced, whole.split(b"\n")
