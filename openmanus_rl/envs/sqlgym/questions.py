"""Questions with the SQL that answers them: templates over the world's own schemas, with values from the data."""

import random
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from openmanus_rl.envs.base import Split, split_of
from openmanus_rl.envs.items import pick, seeded
from openmanus_rl.envs.sqlgym.databases import Column, Schema, Table, database_bytes, schemas


@dataclass(frozen=True)
class Question:
    """What is asked of a database, and SQL whose result is the right answer."""

    database: str
    text: str
    gold: str
    split: Split
    hint: str = ""
    """What one has to know to understand the question; shown with it."""


@dataclass
class _Asking:
    """A table to ask about, in its database."""

    schema: Schema
    table: Table
    connection: sqlite3.Connection
    chance: random.Random

    def value(self, column: Column, table: Table | None = None) -> Any:
        """One that the data holds."""
        return pick(_values(self.connection, (table or self.table).name, column.name), self.chance.random())

    def parents(self) -> Iterator[tuple[Column, Table, Column]]:
        """The tables that this one refers to and whose rows have names: the reference, the table, its name."""
        for reference in self.table.of_role("ref"):
            parent = self.schema.table(reference.detail)
            for name in parent.of_role("name")[:1]:
                yield reference, parent, name


Asked = Iterator[tuple[str, str]]
Template = Callable[[_Asking], Asked]


def _counts(on: _Asking) -> Asked:
    table = on.table
    for column in table.of_role("cat"):
        value = on.value(column)
        yield (
            f"How many {table.many} have the {column.label} '{value}'?",
            f"SELECT COUNT(*) FROM {table.name} WHERE {column.name} = '{value}'",
        )
    for column in table.of_role("date"):
        year = on.value(column)[:4]
        yield (
            f"How many {table.many} have their {column.label} in {year}?",
            f"SELECT COUNT(*) FROM {table.name} WHERE {column.name} LIKE '{year}-%'",
        )
    for column in table.of_role("int", "float"):
        bound = on.value(column)
        yield (
            f"How many {table.many} have a {column.label} of at least {bound}?",
            f"SELECT COUNT(*) FROM {table.name} WHERE {column.name} >= {bound}",
        )


def _aggregates(on: _Asking) -> Asked:
    table = on.table
    words = {"AVG": "average", "MAX": "highest", "MIN": "lowest", "SUM": "total"}
    for category in table.of_role("cat"):
        for number in table.of_role("int", "float"):
            function = pick(sorted(words), on.chance.random())
            value = on.value(category)
            yield (
                f"What is the {words[function]} {number.label} of the {table.many} "
                f"with the {category.label} '{value}'?",
                f"SELECT {function}({number.name}) FROM {table.name} WHERE {category.name} = '{value}'",
            )


def _groups(on: _Asking) -> Asked:
    table = on.table
    for category in table.of_role("cat"):
        yield (
            f"How many {table.many} are there of each {category.label}? Give the {category.label} and the number.",
            f"SELECT {category.name}, COUNT(*) FROM {table.name} GROUP BY {category.name}",
        )
        for number in table.of_role("int", "float")[:1]:
            yield (
                f"What is the average {number.label} of the {table.many} of each {category.label}? "
                f"Give the {category.label} and the average, from the highest average to the lowest.",
                f"SELECT {category.name}, AVG({number.name}) AS average FROM {table.name} "
                f"GROUP BY {category.name} ORDER BY average DESC",
            )
        yield (
            f"Which {category.label} do most {table.many} have? Give the first in the alphabet if several do.",
            f"SELECT {category.name} FROM {table.name} GROUP BY {category.name} "
            f"ORDER BY COUNT(*) DESC, {category.name} LIMIT 1",
        )


def _rankings(on: _Asking) -> Asked:
    table = on.table
    for name in table.of_role("name")[:1]:
        for number in table.of_role("int", "float"):
            count = 2 + int(on.chance.random() * 4)
            yield (
                f"Which {count} {table.many} have the highest {number.label}? Give {name.label} and {number.label}, "
                f"the highest first, and those with the same {number.label} by {name.label}.",
                f"SELECT {name.name}, {number.name} FROM {table.name} "
                f"ORDER BY {number.name} DESC, {name.name} LIMIT {count}",
            )
            yield (
                f"Give the {name.label} of every {table.one} whose {number.label} is above the average of all "
                f"{table.many}.",
                f"SELECT {name.name} FROM {table.name} "
                f"WHERE {number.name} > (SELECT AVG({number.name}) FROM {table.name})",
            )


def _shares(on: _Asking) -> Asked:
    table = on.table
    for category in table.of_role("cat")[:1]:
        value = on.value(category)
        yield (
            f"What percentage of all {table.many} has the {category.label} '{value}'?",
            f"SELECT 100.0 * SUM({category.name} = '{value}') / COUNT(*) FROM {table.name}",
        )


def _of_a_parent(on: _Asking) -> Asked:
    table = on.table
    for reference, parent, name in on.parents():
        value = on.value(name, parent)
        joined = f"{table.name} JOIN {parent.name} ON {table.name}.{reference.name} = {parent.name}.id"
        yield (
            f"How many {table.many} belong to the {parent.one} with the {name.label} '{value}'?",
            f"SELECT COUNT(*) FROM {joined} WHERE {parent.name}.{name.name} = '{value}'",
        )
        for number in table.of_role("int", "float")[:1]:
            yield (
                f"What is the total {number.label} of the {table.many} of each {parent.one}? Give the {parent.one}'s "
                f"{name.label} and the total, without those that have no {table.one}.",
                f"SELECT {parent.name}.{name.name}, SUM({table.name}.{number.name}) FROM {joined} "
                f"GROUP BY {parent.name}.id",
            )
        for category in parent.of_role("cat")[:1]:
            wanted = on.value(category, parent)
            yield (
                f"How many {table.many} belong to {parent.many} with the {category.label} '{wanted}'?",
                f"SELECT COUNT(*) FROM {joined} WHERE {parent.name}.{category.name} = '{wanted}'",
            )


def _having_children(on: _Asking) -> Asked:
    table = on.table
    for reference, parent, name in on.parents():
        joined = f"{parent.name} JOIN {table.name} ON {table.name}.{reference.name} = {parent.name}.id"
        for category in table.of_role("cat")[:1]:
            value = on.value(category)
            yield (
                f"Which {parent.many} have at least one {table.one} with the {category.label} '{value}'? "
                f"Give each {name.label} once.",
                f"SELECT DISTINCT {parent.name}.{name.name} FROM {joined} "
                f"WHERE {table.name}.{category.name} = '{value}'",
            )
            yield (
                f"How many {parent.many} have no {table.one} with the {category.label} '{value}'?",
                f"SELECT COUNT(*) FROM {parent.name} WHERE id NOT IN "
                f"(SELECT {reference.name} FROM {table.name} WHERE {category.name} = '{value}')",
            )
        bound = max(1, table.rows // parent.rows)
        yield (
            f"Which {parent.many} have more than {bound} {table.many}? Give {name.label} and number of {table.many}.",
            f"SELECT {parent.name}.{name.name}, COUNT(*) FROM {joined} "
            f"GROUP BY {parent.name}.id HAVING COUNT(*) > {bound}",
        )
        yield (
            f"Which {parent.one} has the most {table.many}? "
            f"Give the {name.label}; of several the first in the alphabet.",
            f"SELECT {parent.name}.{name.name} FROM {joined} "
            f"GROUP BY {parent.name}.id ORDER BY COUNT(*) DESC, {parent.name}.{name.name} LIMIT 1",
        )


def _two_steps_up(on: _Asking) -> Asked:
    table = on.table
    for reference in table.of_role("ref"):
        middle = on.schema.table(reference.detail)
        for upper in middle.of_role("ref"):
            top = on.schema.table(upper.detail)
            joined = (
                f"{table.name} JOIN {middle.name} ON {table.name}.{reference.name} = {middle.name}.id "
                f"JOIN {top.name} ON {middle.name}.{upper.name} = {top.name}.id"
            )
            for category in top.of_role("cat")[:1]:
                yield (
                    f"How many {table.many} are there for the {top.many} of each {category.label}? "
                    f"Give the {category.label} and the number, without those that have none.",
                    f"SELECT {top.name}.{category.name}, COUNT(*) FROM {joined} GROUP BY {top.name}.{category.name}",
                )
                for number in table.of_role("int", "float")[:1]:
                    value = on.value(category, top)
                    yield (
                        f"What is the average {number.label} of the {table.many} that belong to {top.many} "
                        f"with the {category.label} '{value}'?",
                        f"SELECT AVG({table.name}.{number.name}) FROM {joined} "
                        f"WHERE {top.name}.{category.name} = '{value}'",
                    )


TEMPLATES: tuple[Template, ...] = (
    _counts,
    _aggregates,
    _groups,
    _rankings,
    _shares,
    _of_a_parent,
    _having_children,
    _two_steps_up,
)

ROUNDS = 6
"""How often each template is asked; later rounds ask with other values, and what is the same is asked once."""


@lru_cache(maxsize=1)
def own_questions() -> tuple[Question, ...]:
    """All questions, in an order that never changes; those with an empty answer are left out."""
    asked: dict[str, Question] = {}
    connections = {schema.name: _open(schema.name) for schema in schemas()}
    for number in range(ROUNDS):
        for schema in schemas():
            connection = connections[schema.name]
            for table in schema.tables:
                on = _Asking(schema, table, connection, seeded(f"sqlgym {number} {schema.name} {table.name}"))
                for text, gold in (question for template in TEMPLATES for question in template(on)):
                    name = f"{schema.name} {text}"
                    if name not in asked and any(next(connection.execute(gold), ())):
                        asked[name] = Question(schema.name, text, gold, split_of(name))
    for connection in connections.values():
        connection.close()
    _values.cache_clear()
    return tuple(asked.values())


@lru_cache(maxsize=1024)
def _values(connection: sqlite3.Connection, table: str, column: str) -> list[Any]:
    return [row[0] for row in connection.execute(f"SELECT DISTINCT {column} FROM {table} ORDER BY 1")]


def _open(name: str) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(database_bytes(name))
    return connection
