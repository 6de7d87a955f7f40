"""Looking things up as a world."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from openmanus_rl.envs.base import (
    ActionForm,
    ActionGrammar,
    Environment,
    EpisodeOver,
    Observation,
    Split,
    StepResult,
    Task,
    split_of,
    stable_hash,
)
from openmanus_rl.envs.items import item_number, pick
from openmanus_rl.envs.searchqa.library import library_from_files, own_library
from openmanus_rl.envs.searchqa.questions import Question
from openmanus_rl.envs.text import normal_answer
from openmanus_rl.errors import UserError

LONGEST_QUERY = 500
"""Characters of a search beyond these are not looked at."""


@dataclass
class _Inquiry:
    """How far an episode has come."""

    item_id: str
    question: Question
    seen: list[str] = field(default_factory=list)
    """Titles of the pages found so far."""
    turns: int = 0
    over: bool = False


class SearchQA(Environment):
    """Answer a question about a world that exists only in the library's pages.

    `<search>words</search>` finds the `top_k` pages that fit best and shows them between `<information>` and
    `</information>`. `<answer>words</answer>` ends the episode; the right answer pays 1, where case, punctuation,
    articles and spaces do not count. Words around the tags are let be; of several tags the first counts. A question
    asks for one to three facts in a row, each about what the one before named. After `max_steps` turns the episode is
    cut.

    Options: `min_hops` and `max_hops` (how many facts lie between the question and its answer), `top_k`, `max_steps`;
    `corpus_file` and `questions_file` instead of our own.
    """

    name: ClassVar[str] = "searchqa"
    grammar: ClassVar[ActionGrammar] = ActionGrammar(
        (
            ActionForm(
                "<search>words</search>",
                r"(?s:(?:(?!<answer>).)*?<search>\s*(?P<query>\S(?:(?!</?search>).)*)</search>.*)",
            ),
            ActionForm(
                "<answer>words</answer>",
                r"(?s:(?:(?!<search>).)*?<answer>\s*(?P<answer>\S(?:(?!</?answer>).)*)</answer>.*)",
            ),
        )
    )
    success_rule: ClassVar[str] = "the answer given is the right one, but for case, punctuation, articles and spaces"
    score_range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __init__(
        self,
        min_hops: int = 1,
        max_hops: int = 3,
        top_k: int = 3,
        max_steps: int = 8,
        corpus_file: str | None = None,
        questions_file: str | None = None,
    ) -> None:
        if not 1 <= min_hops <= max_hops:
            raise UserError(
                f"searchqa: min_hops is {min_hops} and max_hops is {max_hops}", "There are questions of 1 to 3 hops."
            )
        if top_k < 1:
            raise UserError(f"searchqa: top_k is {top_k}", "A search shows at least one page.")
        if max_steps < 1:
            raise UserError(f"searchqa: max_steps is {max_steps}", "An episode needs at least one turn.")
        if (corpus_file is None) != (questions_file is None):
            raise UserError(
                "searchqa: a corpus_file and a questions_file belong together",
                "Give both, or neither for the world's own.",
            )
        self.min_hops, self.max_hops = min_hops, max_hops
        self.top_k = top_k
        self.max_steps = max_steps
        own = corpus_file is None or questions_file is None
        self._library = own_library() if own else library_from_files(str(corpus_file), str(questions_file))
        self._present: _Inquiry | None = None

    def instructions(self) -> str:
        return (
            "Answer the question. Search for what you do not know; the answer is a few words. "
            f"Actions: {self.grammar.describe()}."
        )

    @classmethod
    def item_ids(cls, split: Split, **options: Any) -> Iterator[str]:
        """One item for each question of the split with the right number of hops, where that is known."""
        world = cls(**options)
        yielded: set[int] = set()
        for number, question in enumerate(world._library.questions):
            name = stable_hash(question.text)
            fits = not question.hops or world.min_hops <= question.hops <= world.max_hops
            if fits and split_of(question.text) == split and name not in yielded:
                yielded.add(name)
                yield f"{cls.name}_{number}"

    def reset(self, task: Task) -> Observation:
        self._present = _Inquiry(task.item_id, self._question_of(task.item_id))
        return Observation(f"Question: {self._inquiry.question.text}")

    def step(self, action: str) -> StepResult:
        inquiry = self._inquiry
        if inquiry.over:
            raise EpisodeOver(f"{inquiry.item_id} is over; call reset")
        inquiry.turns += 1
        match = self.grammar.parse(action)
        given = match.groupdict() if match else {}
        if given.get("answer"):
            right = normal_answer(given["answer"]) in {normal_answer(answer) for answer in inquiry.question.answers}
            inquiry.over = True
            return StepResult(Observation("The answer was taken."), float(right), True, False, right)
        inquiry.over = inquiry.turns >= self.max_steps
        if given.get("query"):
            return StepResult(Observation(self._look_up(given["query"])), 0.0, False, inquiry.over, False)
        why = f"write one of {self.grammar.describe()}"
        return StepResult(Observation(f"This is no action: {why}."), 0.0, False, inquiry.over, False, {"invalid": why})

    def state_key(self) -> str:
        """The question and the pages found so far, in whatever order."""
        return f"{stable_hash(self._inquiry.question.text):016x} {sorted(set(self._inquiry.seen))}"

    def difficulty(self) -> str | None:
        """How many facts lie between the question and its answer, where that is known."""
        hops = self._inquiry.question.hops
        return f"hops_{hops}" if hops else None

    def expert_action(self) -> str:
        """Search for the first page on the way that was not found yet; answer when all were.

        Where the way is not known, search for the question once.
        """
        question, seen = self._inquiry.question, self._inquiry.seen
        if not question.pages and not seen and not self._inquiry.turns:
            return f"<search>{question.text}</search>"
        missing = [page for page in question.pages if page not in seen]
        return f"<search>{missing[0]}</search>" if missing else f"<answer>{question.answers[0]}</answer>"

    def random_action(self, uniform: float) -> str:
        """A search for the question, or the title of any page found as the answer."""
        answers = [f"<answer>{title}</answer>" for title in dict.fromkeys(self._inquiry.seen)]
        return pick([f"<search>{self._inquiry.question.text}</search>", *answers], uniform)

    def snapshot(self) -> dict[str, Any]:
        inquiry = self._inquiry
        return {"item_id": inquiry.item_id, "seen": list(inquiry.seen), "turns": inquiry.turns, "over": inquiry.over}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        item_id = snapshot["item_id"]
        self._present = _Inquiry(
            item_id, self._question_of(item_id), list(snapshot["seen"]), snapshot["turns"], snapshot["over"]
        )

    def render(self) -> str:
        found = ", ".join(dict.fromkeys(self._inquiry.seen)) or "nothing"
        return (
            f"Question: {self._inquiry.question.text}\nTurn {self._inquiry.turns} of {self.max_steps}. Found: {found}."
        )

    @property
    def _inquiry(self) -> _Inquiry:
        if self._present is None:
            raise EpisodeOver("searchqa: no task has begun; call reset")
        return self._present

    def _question_of(self, item_id: str) -> Question:
        number = item_number(self.name, item_id)
        if number >= len(self._library.questions):
            last = len(self._library.questions) - 1
            raise UserError(f"{item_id} is not a task of this world", f"It has searchqa_0 to searchqa_{last}.")
        return self._library.questions[number]

    def _look_up(self, query: str) -> str:
        found = self._library.search(query[:LONGEST_QUERY], self.top_k)
        self._inquiry.seen += [document.title for document in found]
        shown = "\n".join(
            f"Doc {place} (Title: {document.title}) {document.text}" for place, document in enumerate(found, 1)
        )
        return f"<information>{shown or 'Nothing was found.'}</information>"
