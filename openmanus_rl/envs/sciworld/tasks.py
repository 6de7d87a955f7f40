"""ScienceWorld's thirty task types with their numbers of variations, its own splits, and AgentGym's numbering.

The table is the simulator's own of version 1.2.3, kept here so that tasks can be listed where no Java is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openmanus_rl.envs.base import Split
from openmanus_rl.envs.items import listed_names
from openmanus_rl.errors import UserError, did_you_mean

VARIATIONS: Mapping[str, int] = {
    "boil": 30,
    "melt": 30,
    "freeze": 30,
    "change-the-state-of-matter-of": 30,
    "use-thermometer": 540,
    "measure-melting-point-known-substance": 436,
    "measure-melting-point-unknown-substance": 300,
    "power-component": 20,
    "power-component-renewable-vs-nonrenewable-energy": 20,
    "test-conductivity": 900,
    "test-conductivity-of-unknown-substances": 600,
    "find-living-thing": 300,
    "find-non-living-thing": 300,
    "find-plant": 300,
    "find-animal": 300,
    "grow-plant": 126,
    "grow-fruit": 126,
    "chemistry-mix": 32,
    "chemistry-mix-paint-secondary-color": 36,
    "chemistry-mix-paint-tertiary-color": 36,
    "lifespan-longest-lived": 125,
    "lifespan-shortest-lived": 125,
    "lifespan-longest-lived-then-shortest-lived": 125,
    "identify-life-stages-1": 14,
    "identify-life-stages-2": 10,
    "inclined-plane-determine-angle": 168,
    "inclined-plane-friction-named-surfaces": 1386,
    "inclined-plane-friction-unnamed-surfaces": 162,
    "mendelian-genetics-known-plant": 120,
    "mendelian-genetics-unknown-plant": 480,
}
"""Task types in the order of ScienceWorld's numbers (1-1 … 10-2)."""

NOT_IN_AGENTGYM = frozenset(
    {
        "grow-plant",
        "grow-fruit",
        "inclined-plane-determine-angle",
        "inclined-plane-friction-named-surfaces",
        "inclined-plane-friction-unnamed-surfaces",
        "mendelian-genetics-known-plant",
        "mendelian-genetics-unknown-plant",
    }
)


@dataclass(frozen=True)
class ScienceTask:
    """One variation of one task type: item `<task>-<variation>`."""

    name: str
    variation: int

    @property
    def item_id(self) -> str:
        return f"{self.name}-{self.variation}"


def read_item_id(item_id: str) -> ScienceTask:
    """The task behind an id; each has one spelling."""
    name, _, digits = item_id.rpartition("-")
    if name in VARIATIONS and digits.isdecimal() and str(int(digits)) == digits and int(digits) < VARIATIONS[name]:
        return ScienceTask(name, int(digits))
    raise UserError(
        f"{item_id!r} is not an item of sciworld",
        "An item id is <task>-<variation>: boil-0 is the first of boil's 30 variations.",
    )


def variations(name: str, split: Split) -> range:
    """The variations of a split as ScienceWorld divides them: the first half, the next quarter, and the rest."""
    total = VARIATIONS[name]
    quarter = total // 4
    bounds = {"train": (0, 2 * quarter), "validation": (2 * quarter, 3 * quarter), "test": (3 * quarter, total)}
    return range(*bounds[split])


def task_of_number(number: int) -> ScienceTask:
    """AgentGym's number: the variations of the 23 task types it plays, one type after another."""
    rest = number
    for name, total in VARIATIONS.items():
        if name in NOT_IN_AGENTGYM:
            continue
        if 0 <= rest < total:
            return ScienceTask(name, rest)
        rest -= total
    count = sum(total for name, total in VARIATIONS.items() if name not in NOT_IN_AGENTGYM)
    raise UserError(f"sciworld: there is no task {number}", f"AgentGym numbers its tasks from 0 to {count - 1}.")


def check_names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """The given task types, all of which must exist; unset: all there are."""
    names = listed_names(given) or tuple(VARIATIONS)
    for name in names:
        if name not in VARIATIONS:
            raise UserError(f"sciworld: tasks has {name!r}. {did_you_mean(name, VARIATIONS)}")
    return names
