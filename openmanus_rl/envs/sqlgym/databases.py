"""The world's own databases: twelve schemas from schemas.json, filled by chance from their names, always alike."""

import json
import random
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from openmanus_rl.envs.items import pick, seeded

Role = Literal["id", "ref", "name", "cat", "int", "float", "date"]

_SQL_TYPES: dict[Role, str] = {
    "id": "INTEGER PRIMARY KEY",
    "ref": "INTEGER",
    "name": "TEXT",
    "cat": "TEXT",
    "int": "INTEGER",
    "float": "REAL",
    "date": "TEXT",
}


@dataclass(frozen=True)
class Column:
    """A column; `label` is what people call it, `role` how it is filled and asked about, `detail` from what."""

    name: str
    label: str
    role: Role
    detail: str

    @property
    def definition(self) -> str:
        reference = f" REFERENCES {self.detail}(id)" if self.role == "ref" else ""
        return f"{self.name} {_SQL_TYPES[self.role]}{reference}"


@dataclass(frozen=True)
class Table:
    """A table, what one row of it is called, and what many."""

    name: str
    one: str
    many: str
    rows: int
    columns: tuple[Column, ...]

    def of_role(self, *roles: Role) -> list[Column]:
        return [column for column in self.columns if column.role in roles]

    @property
    def definition(self) -> str:
        return f"CREATE TABLE {self.name} ({', '.join(column.definition for column in self.columns)})"


@dataclass(frozen=True)
class Schema:
    """A database's tables; what a table refers to comes before it."""

    name: str
    tables: tuple[Table, ...]

    def table(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)


@lru_cache(maxsize=1)
def schemas() -> tuple[Schema, ...]:
    return tuple(
        Schema(
            entry["name"],
            tuple(
                Table(
                    table["name"],
                    table["one"],
                    table["many"],
                    table["rows"],
                    tuple(_column(*column) for column in table["columns"]),
                )
                for table in entry["tables"]
            ),
        )
        for entry in _read()["schemas"]
    )


@lru_cache(maxsize=32)
def database_bytes(name: str) -> bytes:
    """The filled database as SQLite writes it to a file."""
    schema = next(schema for schema in schemas() if schema.name == name)
    with closing(sqlite3.connect(":memory:")) as connection:
        for table in schema.tables:
            connection.execute(table.definition)
            places = ", ".join("?" * len(table.columns))
            connection.executemany(f"INSERT INTO {table.name} VALUES ({places})", _rows(schema, table))
        connection.commit()
        return connection.serialize()


def _column(name: str, label: str, spec: str) -> Column:
    role, _, detail = spec.partition(":")
    assert role in _SQL_TYPES, spec
    return Column(name, label, role, detail)


def _rows(schema: Schema, table: Table) -> list[tuple[Any, ...]]:
    chance = seeded(f"sqlgym {schema.name} {table.name}")
    taken: set[str] = set()
    return [
        tuple(_value(schema, column, number, chance, taken) for column in table.columns)
        for number in range(1, table.rows + 1)
    ]


def _value(schema: Schema, column: Column, number: int, chance: random.Random, taken: set[str]) -> Any:
    if column.role == "id":
        return number
    if column.role == "ref":
        return 1 + int(chance.random() * schema.table(column.detail).rows)
    if column.role == "cat":
        return pick(column.detail.split("|"), chance.random())
    if column.role == "name":
        return _fresh_name(column.detail.split(), chance, taken)
    low, _, high = column.detail.partition("-")
    if column.role == "date":
        year = int(low) + int(chance.random() * (int(high) - int(low) + 1))
        return f"{year}-{1 + int(chance.random() * 12):02d}-{1 + int(chance.random() * 28):02d}"
    amount = float(low) + chance.random() * (float(high) - float(low))
    return round(amount) if column.role == "int" else round(amount, 2)


def _fresh_name(pools: list[str], chance: random.Random, taken: set[str]) -> str:
    """A name that no other row of the table has, so that it tells the row."""
    while True:
        name = " ".join(pick(_pool(pool), chance.random()) for pool in pools)
        if name not in taken:
            taken.add(name)
            return name


@lru_cache(maxsize=32)
def _pool(name: str) -> list[str]:
    words: str = _read()["pools"][name]
    return words.split()


@lru_cache(maxsize=1)
def _read() -> Any:
    return json.loads(Path(__file__).with_name("schemas.json").read_text(encoding="utf-8"))
