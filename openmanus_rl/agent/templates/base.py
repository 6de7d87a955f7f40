"""What an action template is: how a thought and an action are written, and how they are read back, from one place."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from openmanus_rl.data.messages import Message
from openmanus_rl.errors import UserError, blamed_on
from openmanus_rl.registry import Registry

END_OF_THOUGHT = "</think>"
"""A model that reasons in a block of its own ends it with this; what stands before is never an action."""


@dataclass(frozen=True)
class ParsedAction:
    """The action in an answer, or why there is none."""

    action: str | None
    """What goes to the world."""
    invalid_reason: str | None = None
    span: tuple[int, int] | None = None
    """The characters of the answer in which the action stands."""
    kind: str = "action"
    """What sort of action, where a template knows several, such as `search` and `answer`."""
    content: str | None = None
    """The action without the marks of its kind; unset: the action itself."""


def invalid(reason: str) -> ParsedAction:
    """An answer without a readable action."""
    return ParsedAction(None, reason, kind="invalid", content=reason)


class ActionTemplate(ABC):
    """One way to write thoughts and actions. Training, validation and demonstrations use the same object."""

    instructions: str
    """The form of an answer, as the agent is told it after the task."""
    stop: tuple[str, ...] = ()
    """Texts that complete an answer: what a model says after the first of them is cut off."""
    observation_role: str = "user"
    """Who tells the agent what it sees, in the words of chat templates."""

    def opening(self, task_description: str, first_observation: str) -> list[Message]:
        """How every episode begins."""
        return [
            {"role": "system", "content": f"{task_description} {self.instructions}"},
            {"role": "user", "content": first_observation},
        ]

    @abstractmethod
    def write(self, action: str, thought: str) -> str:
        """An answer that does `action`, after the thought where the form has a place for one."""

    @abstractmethod
    def parse(self, answer: str) -> ParsedAction:
        """Read an answer. Text of a model is data: it is matched, never evaluated, and whatever it is, none raises."""

    def read(self, answer: str) -> ParsedAction:
        """`parse`, where a mistake of a user's own template is told as one."""
        who = f"agent.template: {type(self).__name__}.parse"
        with blamed_on(who, type(self).parse):
            parsed = self.parse(answer)
        if not isinstance(parsed, ParsedAction):
            raise UserError(f"{who} gave a {type(parsed).__name__}.", "It must give ParsedAction(…) or invalid(…).")
        return parsed

    def render(self, action: str, thought: str | None = None) -> str:
        """What a demonstrator writes: an answer that is read back as `action`, or an error."""
        answer = self.write(action, thought or "go")
        if self.read(answer).action != action:
            raise UserError(
                f"the action {action!r} cannot be written with this template: it would be read as something else.",
                f"It was written as {answer!r}. Choose another agent.template for this world.",
            )
        return answer

    def answer_end(self, answer: str) -> int | None:
        """Where an answer is complete, in characters; None if it goes on to the model's own end."""
        ends = [start + len(text) for text in self.stop if (start := answer.find(text)) >= 0]
        return min(ends, default=None)

    def complaint(self, reason: str) -> str:
        """What the agent is told about an answer that has no readable action."""
        return f"Invalid answer: {reason}."


TEMPLATES: Registry[ActionTemplate] = Registry("action template")


def find_template(name: str) -> ActionTemplate:
    """The template called `name`, or a user's own at `module:name`, as an object or as its class."""
    found = TEMPLATES.lookup(name)
    if isinstance(found, ActionTemplate):
        return found
    if not (isinstance(found, type) and issubclass(found, ActionTemplate)):
        what = f"the class {found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"
        raise UserError(
            f"agent.template={name} is {what}, not an ActionTemplate.",
            "Derive it from openmanus_rl.agent.templates.ActionTemplate; docs/agent.md has an example.",
        )
    missing = [*found.__abstractmethods__, *([] if hasattr(found, "instructions") else ["instructions"])]
    if missing:
        raise UserError(
            f"agent.template={name} has no {' and no '.join(sorted(missing))}.", "docs/agent.md has an example."
        )
    with blamed_on(f"agent.template={name}", found.__init__):
        return found()


def after_thought(answer: str) -> int:
    """Where an answer goes on after a block of reasoning; 0 if it has none."""
    end = answer.rfind(END_OF_THOUGHT)
    return 0 if end < 0 else end + len(END_OF_THOUGHT)


def stripped_span(answer: str, start: int, end: int) -> tuple[int, int]:
    """A span without the blanks at its ends."""
    part = answer[start:end]
    left = len(part) - len(part.lstrip())
    return (start + left, max(start + left, start + len(part.rstrip())))
