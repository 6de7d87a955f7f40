"""Answering questions with SQL as a world."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from openmanus_rl.envs.base import (
    ActionForm,
    ActionGrammar,
    Environment,
    EpisodeOver,
    Isolation,
    Observation,
    Split,
    StepResult,
    Task,
    stable_hash,
)
from openmanus_rl.envs.items import item_number, pick
from openmanus_rl.envs.sqlgym.bird import bird_questions
from openmanus_rl.envs.sqlgym.databases import database_bytes
from openmanus_rl.envs.sqlgym.query_process import QueryProcess
from openmanus_rl.envs.sqlgym.questions import Question, own_questions
from openmanus_rl.envs.sqlgym.runner import Bounds, QueryRefused, Row, definitions, is_ordered, same_answer
from openmanus_rl.errors import UserError

SHOWN_CHARACTERS = 300
"""So much of a result is shown."""


class SqlGym(Environment):
    """Answer a question about an SQLite database with a query whose result is the answer.

    The first observation is the database's tables and the question. Each turn is one `SELECT` or `WITH` query, bare or
    in a ```sql block. What is seen is the beginning of its result, or SQLite's error. If the result is that of the
    right query (the same rows as often; in the same order if the question asks for one; floats nearly equal), that
    pays 1 and ends the episode. Every query is an attempt: after `max_steps` the task is lost.

    Queries can only read, are bounded in time, memory, rows and bytes, and run in a process of their own.

    Options: `bird_dir` (a directory with BIRD's questions and databases instead of our own), `max_steps`,
    `query_seconds` (how long a query may take).
    """

    name: ClassVar[str] = "sqlgym"
    grammar: ClassVar[ActionGrammar] = ActionGrammar(
        (
            ActionForm(
                "SELECT name FROM people WHERE age > 30",
                r"(?s:(?:.*```(?:sql)?)?\s*(?P<sql>(?:select|with)\b[^`]*(?:`[^`]+`[^`]*)*)(?:```[^`]*)?)",
            ),
        )
    )
    success_rule: ClassVar[str] = "the query's result is that of the right query"
    score_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    session_options: ClassVar[tuple[str, ...]] = ("max_steps",)
    isolation: ClassVar[Isolation] = "process"

    def __init__(self, bird_dir: str | None = None, max_steps: int = 5, query_seconds: float = 5.0) -> None:
        if max_steps < 1:
            raise UserError(f"sqlgym: max_steps is {max_steps}", "An episode needs at least one query.")
        if query_seconds <= 0:
            raise UserError(f"sqlgym: query_seconds is {query_seconds}", "A query needs some time.")
        self.max_steps = max_steps
        self.bird_dir = bird_dir
        self._bounds = Bounds(seconds=query_seconds)
        self._questions = _questions(bird_dir)
        self._item_id = ""
        self._question: Question | None = None
        self._database: QueryProcess | None = None
        self._tables: Mapping[str, str] = {}
        self._right: list[Row] | None = None
        self._turns = 0
        self._over = False

    def instructions(self) -> str:
        return (
            "Answer the question about the SQLite database with one query, whose result is the answer. "
            f"Action, for example: {self.grammar.describe()}"
        )

    @classmethod
    def warm_up(cls, bird_dir: str | None = None, **options: Any) -> None:
        """Ask the questions."""
        _questions(bird_dir)

    @classmethod
    def item_ids(cls, split: Split, **options: Any) -> Iterator[str]:
        """One item for each question of the split; what is asked twice of the same database counts once."""
        seen: set[tuple[str, str]] = set()
        for number, question in enumerate(cls(**options)._questions):
            content = (question.database, question.text)
            if question.split == split and content not in seen:
                seen.add(content)
                yield f"{cls.name}_{number}"

    def reset(self, task: Task) -> Observation:
        self._begin(task.item_id)
        return Observation(self._prompt())

    def step(self, action: str) -> StepResult:
        if self._over:
            raise EpisodeOver(f"{self._item_id} is over; call reset")
        question, database = self._asked
        self._turns += 1
        match = self.grammar.parse(action)
        if match is None:
            self._over = self._turns >= self.max_steps
            why = "only a SELECT or WITH query is answered"
            return StepResult(Observation(f"Error: {why}"), 0.0, self._over, False, False, {"invalid": why})
        try:
            rows = database.run(match["sql"].strip())
        except QueryRefused as refusal:
            self._over = self._turns >= self.max_steps
            shown = Observation(_shorten(f"Error: {refusal}"))
            return StepResult(shown, 0.0, self._over, False, False, {"error": str(refusal)[:SHOWN_CHARACTERS]})
        right = same_answer(rows, self._right_rows(), is_ordered(question.gold))
        self._over = right or self._turns >= self.max_steps
        return StepResult(Observation(_shorten(str(rows))), float(right), self._over, False, right)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def state_key(self) -> str:
        """The question and how many queries are left."""
        question, _ = self._asked
        return f"{stable_hash(f'{question.database} {question.text}'):016x} {self.max_steps - self._turns}"

    def expert_action(self) -> str:
        """The right query."""
        return " ".join(self._asked[0].gold.split())

    def random_action(self, uniform: float) -> str:
        """A look at any of the tables."""
        return f'SELECT * FROM "{pick(list(self._tables), uniform)}" LIMIT 3'

    def snapshot(self) -> dict[str, Any]:
        return {"item_id": self._item_id, "turns": self._turns, "over": self._over}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        self._begin(snapshot["item_id"])
        self._turns, self._over = snapshot["turns"], snapshot["over"]

    def render(self) -> str:
        return f"{self._prompt()}\nQuery {self._turns + 1} of {self.max_steps}."

    @property
    def _asked(self) -> tuple[Question, QueryProcess]:
        if self._question is None or self._database is None:
            raise EpisodeOver("sqlgym: no task has begun; call reset")
        return self._question, self._database

    def _begin(self, item_id: str) -> None:
        number = item_number(self.name, item_id)
        if number >= len(self._questions):
            last = len(self._questions) - 1
            raise UserError(f"{item_id} is not a task of this world", f"It has sqlgym_0 to sqlgym_{last}.")
        self.close()
        self._item_id, self._question = item_id, self._questions[number]
        source = self._source(self._question)
        self._tables, self._database = definitions(source), QueryProcess(source, self._bounds)
        self._right, self._turns, self._over = None, 0, False

    def _source(self, question: Question) -> bytes | Path:
        if self.bird_dir is None:
            return database_bytes(question.database)
        path = Path(question.database)
        if not path.is_file():
            raise UserError(
                f"sqlgym: there is no database at {path}", "BIRD's databases come in an archive of their own."
            )
        return path

    def _right_rows(self) -> list[Row]:
        """The right answer. It is computed here and goes nowhere."""
        if self._right is None:
            question, database = self._asked
            try:
                self._right = database.run(question.gold)
            except QueryRefused as refusal:
                raise UserError(
                    f"sqlgym: the right query of {self._item_id} cannot be run: {refusal}",
                    "Raise env.options.query_seconds, or leave the task out.",
                ) from refusal
        return self._right

    def _prompt(self) -> str:
        question, _ = self._asked
        tables = "\n".join(f"{definition};" for definition in self._tables.values())
        hint = f"\nHint: {question.hint}" if question.hint else ""
        return f"Tables:\n{tables}\n\nQuestion: {question.text}{hint}"


def _questions(bird_dir: str | None) -> Sequence[Question]:
    return own_questions() if bird_dir is None else bird_questions(bird_dir)


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."
