"""Reading and writing parquet files that say what they were made from."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from openmanus_rl.errors import UserError
from openmanus_rl.files import written_aside

_METADATA_KEY = b"openmanus_rl"


def write_rows(path: Path, rows: Sequence[dict[str, Any]], schema: pa.Schema, made_from: dict[str, Any]) -> None:
    """Write rows, all or none; `made_from` goes into the file's metadata."""
    described = schema.with_metadata({_METADATA_KEY: json.dumps(made_from, sort_keys=True).encode()})
    try:
        table = pa.Table.from_pylist(list(rows), schema=described)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise UserError(f"{path} cannot hold these rows: {error}") from error
    with written_aside(Path(path)) as aside:
        pq.write_table(table, aside)


def open_parquet(path: Path, hint_if_missing: str) -> pq.ParquetFile:
    """The file, or an error that names it."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"there is no file {path}", hint_if_missing)
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(
            f"{path} is not a readable parquet file: {error}", "It may be cut off; make it again."
        ) from error


def read_rows(path: Path, columns: Sequence[str], hint_if_missing: str) -> list[dict[str, Any]]:
    """All rows of a file that must have these columns and at least one row."""
    with open_parquet(path, hint_if_missing) as file:
        present = file.schema_arrow.names
        missing = [name for name in columns if name not in present]
        if missing:
            raise UserError(
                f"{path} has no column {', '.join(missing)}; it has {', '.join(present)}",
                f"These columns are needed: {', '.join(columns)}.",
            )
        if file.metadata.num_rows == 0:
            raise UserError(f"{path} has no rows", hint_if_missing)
        rows: list[dict[str, Any]] = file.read().to_pylist()
        return rows


def made_from(file: pq.ParquetFile) -> dict[str, Any]:
    """What the file says it was made from; empty for a file from elsewhere."""
    stored = (file.schema_arrow.metadata or {}).get(_METADATA_KEY)
    described: dict[str, Any] = json.loads(stored) if stored else {}
    return described
