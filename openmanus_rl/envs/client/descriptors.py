"""How each of AgentGym's servers is spoken to: one descriptor per family, and no code."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Descriptor:
    """One family's wire format, its rewards, and what an agent is told at the start.

    Where an answer is said to have a value at a key, None means that the answer itself is the value.
    """

    reset_key: str
    """The number in a reset that names the task: the n of item `<env>_<n>`."""
    success_at: float
    """An episode that ended is a success if its rewards add up to at least this."""
    success_rule: str
    instructions: str
    """AgentGym's servers send none."""
    score_range: tuple[float, float] = (0.0, 1.0)
    prefix: str = ""
    id_key: str = "id"
    """Of the session, in every request but a create."""
    created_id_key: str | None = "id"
    """Of the session in a create's answer."""
    create_body: Mapping[str, Any] | None = None
    create_number_key: str | None = None
    """Where a create wants the task's number too."""
    reset_extras: Mapping[str, Any] = field(default_factory=dict)
    """What else a reset wants."""
    first_observation_keys: tuple[str | int | None, ...] = ("observation",)
    """What of a reset's answer is shown to the agent, one below the other."""
    observation_key: str = "observation"
    """Of a step's answer."""
    actions_key: str | None = None
    """A list of the actions that are possible next, in the answers to resets and steps; it is shown too."""
    action_form: str = "{}"
    """What an action is put into before it is sent."""
    reward_key: str = "reward"
    reward_is_total: bool = False
    """Whether the server sends the sum so far; a step's reward is then what it added."""
    done_key: str = "done"
    truncated_key: str | None = None
    has_close: bool = False

    def creation(self, number: int) -> Mapping[str, Any] | None:
        """The body of a create for a task of this number."""
        if self.create_number_key is None:
            return self.create_body
        return {**(self.create_body or {}), self.create_number_key: number}


def _tool_world(what: str) -> Descriptor:
    return Descriptor(
        reset_key="id",
        id_key="env_idx",
        created_id_key=None,
        create_number_key="id",
        first_observation_keys=(None,),
        action_form="Action: {}",
        reward_is_total=True,
        success_at=1.0,
        success_rule="the goal was reached when the agent said it had finished",
        instructions=(
            f"Reach the goal with the tools of {what}. An action is a tool and its input as JSON: "
            "[tool] with Action Input: [JSON]. The tools are told by: check_valid_actions with Action Input: {}. "
            'When the goal is reached: finish with Action Input: {"answer": [answer, or done]}.'
        ),
    )


DESCRIPTORS: Mapping[str, Descriptor] = {
    "textcraft": Descriptor(
        reset_key="data_idx",
        create_body={},
        has_close=True,
        success_at=1.0,
        success_rule="the goal item was crafted",
        instructions=(
            "Craft the goal item. The recipes you may use are listed; what no recipe makes can be fetched. "
            "Actions: get [number] [item], craft [number] [item] using [number] [item], ..., inventory."
        ),
    ),
    "maze": Descriptor(
        reset_key="game",
        prefix="/maze",
        success_at=1.0,
        success_rule="the goal was reached",
        instructions=(
            "Reach the goal in as few steps as you can. A position is a row, counted downwards, and a column, counted "
            "to the right. Actions: move up, move down, move left, move right."
        ),
    ),
    "wordle": Descriptor(
        reset_key="seed",
        prefix="/wordle",
        success_at=1.0,
        success_rule="the hidden word was guessed",
        instructions=(
            "Guess the hidden word of five letters in six tries. Each guess is answered letter by letter: g is in the "
            "word at this place, y is in the word at another place, b is not in the word. "
            "Action: five letters with spaces between them, such as c r a n e."
        ),
    ),
    "babyai": Descriptor(
        reset_key="data_idx",
        reward_key="score",
        reward_is_total=True,
        has_close=True,
        success_at=0.01,
        success_rule="the goal was reached, however many steps it took",
        instructions=(
            "Reach the goal in a world of rooms, doors and objects. "
            "Actions: turn left, turn right, move forward, go to [object] [number], pickup [object] [number], "
            "go through [door] [number], toggle and go through [door] [number], toggle, drop, check available actions."
        ),
    ),
    "sciworld": Descriptor(
        reset_key="data_idx",
        reward_key="score",
        reward_is_total=True,
        has_close=True,
        first_observation_keys=("task_description", "observation"),
        success_at=100.0,
        score_range=(-100.0, 100.0),
        success_rule="the score reached 100",
        instructions=(
            "Do the task in a simulated laboratory. Actions: open [thing], close [thing], activate [thing], "
            "deactivate [thing], connect [thing] to [thing], disconnect [thing], use [thing] on [thing], look around, "
            "look at [thing], look in [thing], read [thing], move [thing] to [thing], pick up [thing], "
            "put down [thing], pour [thing] into [thing], dunk [thing] into [thing], mix [thing], go to [place], "
            "eat [thing], flush [thing], focus on [thing], wait, wait1, task, inventory."
        ),
    ),
    "alfworld": Descriptor(
        reset_key="game",
        reset_extras={"world_type": "Text"},
        actions_key="available_actions",
        success_at=1.0,
        success_rule="the household task was done",
        instructions=(
            "Do the task in a household. After every action you see what happened and the actions that are possible "
            "next; any other changes nothing. Actions are of these kinds: go to [place], open [place], close [place], "
            "take [object] from [place], put [object] in/on [place] (move [object] to [place] on newer servers), "
            "heat, cool or clean [object] with [place], use [object], examine [thing], look, inventory."
        ),
    ),
    "webshop": Descriptor(
        reset_key="session_id",
        id_key="env_idx",
        created_id_key=None,
        first_observation_keys=(0,),
        observation_key="state",
        success_at=1.0,
        success_rule="what was bought fits the instruction in every attribute, option and in price",
        instructions=(
            "Buy what the instruction asks for. Actions: search[keywords] where there is a search bar, "
            "click[button or product] for what the page lists as clickable. click[Buy Now] ends the task."
        ),
    ),
    "sqlgym": Descriptor(
        reset_key="item_id",
        id_key="env_idx",
        created_id_key=None,
        first_observation_keys=(0,),
        observation_key="state",
        success_at=1.0,
        success_rule="the query gives what the gold query gives",
        instructions="Answer the question with one SQLite query for the schema that is shown. The action is the query.",
    ),
    "searchqa": Descriptor(
        reset_key="id",
        id_key="env_idx",
        created_id_key=None,
        create_number_key="id",
        first_observation_keys=(None,),
        has_close=True,
        success_at=1.0,
        success_rule="the answer is one of the gold answers",
        instructions=(
            "Answer the question. Actions: <search>query</search> finds passages, as often as you need; "
            "<answer>answer</answer> ends the task."
        ),
    ),
    "webarena": Descriptor(
        reset_key="idx",
        reset_extras={"seed": 0},
        id_key="env_idx",
        created_id_key="env_idx",
        first_observation_keys=("object", "observation"),
        action_form="In summary, the next action I will perform is ```{}```",
        done_key="terminated",
        truncated_key="truncated",
        has_close=True,
        success_at=1.0,
        success_rule="the page or the answer at the end is what the objective asks for",
        instructions=(
            "Reach the objective in a web browser. You see the page as an accessibility tree with an id for every "
            "element. Actions: click [id], type [id] [text] [1 to press enter, 0 not to], hover [id], press [keys], "
            "scroll [down or up], new_tab, tab_focus [number], close_tab, goto [url], go_back, go_forward, "
            "stop [answer, or N/A if it cannot be done]."
        ),
    ),
    "weather": _tool_world("a weather service"),
    "movie": _tool_world("a film database"),
    "academia": _tool_world("a database of papers and authors"),
    "todo": _tool_world("a to-do list"),
    "sheet": _tool_world("a spreadsheet"),
}
