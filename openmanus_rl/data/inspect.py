"""What is in a parquet file: the data behind `openmanus-rl data inspect FILE`."""

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from openmanus_rl.data.parquet import made_from, open_parquet


@dataclass(frozen=True)
class ParquetDescription:
    """A file at a glance."""

    path: Path
    rows: int
    bytes: int
    columns: dict[str, str]
    """Names and types."""
    splits: dict[str, int]
    """Rows of each split, for files whose rows say theirs."""
    made_from: dict[str, Any]
    """World, options and version, for files of this project."""
    examples: list[dict[str, Any]]


def describe_parquet(path: Path, examples: int = 2) -> ParquetDescription:
    """Look at a file. Only its first rows and, if there is one, the split of each row are read."""
    path = Path(path)
    with open_parquet(path, "Files are made with: openmanus-rl data build ENV") as file:
        return ParquetDescription(
            path=path,
            rows=file.metadata.num_rows,
            bytes=path.stat().st_size,
            columns={field.name: str(field.type) for field in file.schema_arrow},
            splits=_splits(file),
            made_from=made_from(file),
            examples=_first_rows(file, examples),
        )


def _splits(file: pq.ParquetFile) -> dict[str, int]:
    if "extra_info.split" not in {file.schema.column(i).path for i in range(len(file.schema))}:
        return {}
    rows = file.read(columns=["extra_info.split"]).column("extra_info").to_pylist()
    return dict(Counter(row["split"] for row in rows))


def _first_rows(file: pq.ParquetFile, n: int) -> list[dict[str, Any]]:
    if n == 0:
        return []
    rows = (row for batch in file.iter_batches(batch_size=n) for row in batch.to_pylist())
    return list(islice(rows, n))
