"""Shopping as a world."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from html import escape
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
from openmanus_rl.envs.webshop import pages
from openmanus_rl.envs.webshop.catalogue import Product
from openmanus_rl.envs.webshop.pages import Page, Visit
from openmanus_rl.envs.webshop.reward import Goal, Score, fits_option, score
from openmanus_rl.envs.webshop.shop import own_shop, shop_from_files
from openmanus_rl.errors import UserError

LONGEST_QUERY = 500
"""Characters of a search beyond these are not looked at."""


class WebShop(Environment):
    """Buy what the instruction asks for, in a shop with a search page, result pages and product pages.

    `search[keywords]` finds up to fifty products, ten on a page. `click[value]` clicks what the page shows: a product's
    asin, an option's value, `Next >`, `< Prev`, `Back to Search`, `Description`, `Features`, `Reviews` or `Buy Now`.
    A click on what is not there leaves the page as it is. Buying ends the episode and pays WebShop's reward, from 0 to
    1, for the attributes, options and price that were asked for (`reward.py`); it is a success if that is 1. After
    `max_steps` turns the episode is cut.

    Options: `num_products` and `catalogue_seed` of the generated catalogue, or `data_dir` with WebShop's own product
    files, of which the first `num_products` are used; `human_instructions` takes those that people wrote for them;
    `max_steps`.
    """

    name: ClassVar[str] = "webshop"
    grammar: ClassVar[ActionGrammar] = ActionGrammar(
        (
            ActionForm("search[keywords]", r"search\s*\[(?P<keywords>.+)\]"),
            ActionForm("click[value]", r"click\s*\[(?P<clicked>.+)\]"),
        )
    )
    success_rule: ClassVar[str] = "what was bought has all attributes and options asked for, within the price: reward 1"
    score_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    session_options: ClassVar[tuple[str, ...]] = ("max_steps",)

    def __init__(
        self,
        num_products: int = 10_000,
        catalogue_seed: int = 0,
        data_dir: str | None = None,
        human_instructions: bool = False,
        max_steps: int = 15,
    ) -> None:
        if num_products < 1:
            raise UserError(f"webshop: num_products is {num_products}", "A shop has at least one product.")
        if max_steps < 1:
            raise UserError(f"webshop: max_steps is {max_steps}", "An episode needs at least one turn.")
        if human_instructions and data_dir is None:
            raise UserError(
                "webshop: human_instructions are part of WebShop's own files", "Set env.options.data_dir as well."
            )
        self.max_steps = max_steps
        self._shop = (
            own_shop(num_products, catalogue_seed)
            if data_dir is None
            else shop_from_files(data_dir, num_products, human_instructions)
        )
        self._item_id = ""
        self._goal: Goal | None = None
        self._visit = Visit()
        self._turns = 0
        self._over = False
        self._score: Score | None = None

    def instructions(self) -> str:
        return (
            "Buy what the instruction asks for, with the right options and within the price. "
            f"Actions: {self.grammar.describe()}. A value is what stands on the page: a button such as Buy Now, "
            "a product's code, or the value of an option."
        )

    @classmethod
    def item_ids(cls, split: Split, **options: Any) -> Iterator[str]:
        """One item for each instruction of the split; where two products have the same one, it counts once."""
        yielded: set[int] = set()
        for number, goal in enumerate(cls(**options)._shop.goals):
            name = stable_hash(goal.instruction)
            if split_of(goal.instruction) == split and name not in yielded:
                yielded.add(name)
                yield f"{cls.name}_{number}"

    def reset(self, task: Task) -> Observation:
        self._begin(task.item_id)
        return self._observation()

    def step(self, action: str) -> StepResult:
        if self._over:
            raise EpisodeOver(f"{self._item_id} is over; call reset")
        goal = self._asked
        self._turns += 1
        info = self._act(action)
        reward = 0.0
        bought = self._visit.page == "done"
        if bought:
            self._score = score(goal, self._product, self._visit.chosen)
            reward = self._score.reward
            info = {"score": asdict(self._score)}
        truncated = not bought and self._turns >= self.max_steps
        self._over = bought or truncated
        return StepResult(self._observation(), reward, bought, truncated, bought and reward == 1.0, info)

    def available_actions(self) -> dict[str, Any]:
        """What can be done on this page, in WebShop's words."""
        page = self._page()
        return {"has_search_bar": page.has_search_bar, "clickables": [name.lower() for name in page.clickables]}

    def instruction_text(self) -> str:
        """What the buyer wants."""
        return f"Instruction: {self._asked.instruction}"

    def state(self) -> dict[str, str]:
        """The page as WebShop's state: an address, the page and the instruction."""
        visit = self._visit
        parts = [visit.page, visit.asin, visit.detail, visit.keywords, str(visit.number)]
        body = "".join(f"<p>{escape(piece)}</p>" for piece in self._page().pieces)
        return {
            "url": "/" + "/".join(part for part in parts if part),
            "html": f"<html><body>{body}</body></html>",
            "instruction_text": self.instruction_text(),
        }

    def state_key(self) -> str:
        """The instruction and the page with the options chosen on it; turns are left out."""
        visit = self._visit
        chosen = sorted(visit.chosen.items())
        return f"{stable_hash(self._asked.instruction):016x} {visit.page} {visit.asin} {visit.detail} {chosen} " + (
            f"{visit.number} {visit.keywords}" if visit.page != "search" else ""
        )

    def expert_action(self) -> str:
        """Search for what the instruction says, take the first product that fits in full, choose its options, buy."""
        visit = self._visit
        if visit.page == "search":
            return f"search[{self._asked.instruction}]"
        found = self._shop.search(visit.keywords)
        right = next((place for place, product in enumerate(found) if self._would_pay_in_full(product)), None)
        if visit.page == "results":
            if right is None:  # nothing that the instruction finds fits in full: look for the very product
                return f"search[{self._asked.product.title}]"
            number = right // pages.PER_PAGE + 1
            if number == visit.number:
                return f"click[{found[right].asin}]"
            return f"click[{pages.NEXT if number > visit.number else pages.PREVIOUS}]"
        if visit.page == "detail":
            return f"click[{pages.PREVIOUS}]"
        if not self._would_pay_in_full(self._product):
            return f"click[{pages.BACK}]"
        wanted = self._options_wanted(self._product)
        missing = [value for name, value in wanted.items() if visit.chosen.get(name) != value]
        return f"click[{missing[0] if missing else pages.BUY}]"

    def random_action(self, uniform: float) -> str:
        """A search for the instruction where there is a search bar, else anything that can be clicked."""
        page = self._page()
        if page.has_search_bar:
            return f"search[{self._asked.instruction}]"
        return f"click[{pick(page.clickables, uniform)}]"

    def snapshot(self) -> dict[str, Any]:
        return {"item_id": self._item_id, "visit": asdict(self._visit), "turns": self._turns, "over": self._over}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        self._begin(snapshot["item_id"])
        self._visit = Visit.load(snapshot["visit"])
        self._turns, self._over = snapshot["turns"], snapshot["over"]
        if self._visit.page == "done":
            self._score = score(self._asked, self._product, self._visit.chosen)

    def render(self) -> str:
        return "\n".join(self._page().pieces)

    @property
    def _asked(self) -> Goal:
        if self._goal is None:
            raise EpisodeOver("webshop: no task has begun; call reset")
        return self._goal

    @property
    def _product(self) -> Product:
        return self._shop.products[self._visit.asin]

    def _begin(self, item_id: str) -> None:
        number = item_number(self.name, item_id)
        if number >= len(self._shop.goals):
            raise UserError(
                f"{item_id} is not a task of this shop",
                f"It has {len(self._shop.goals)}: webshop_0 to webshop_{len(self._shop.goals) - 1}.",
            )
        self._item_id, self._goal = item_id, self._shop.goals[number]
        self._visit, self._turns, self._over, self._score = Visit(), 0, False, None

    def _act(self, action: str) -> dict[str, Any]:
        """Do it; or tell why it is no action (`invalid`), or that a click hit nothing (`missed`)."""
        match = self.grammar.parse(action)
        if match is None:
            return {"invalid": f"not one of {self.grammar.describe()}"}
        given = match.groupdict()
        if given.get("keywords"):
            self._visit = Visit("results", given["keywords"].strip().lower()[:LONGEST_QUERY])
            return {}
        clicked = given["clicked"].strip().lower()
        if clicked not in (name.lower() for name in self._page().clickables):
            return {"missed": f"nothing on this page is called {clicked[:100]!r}"}
        self._click(clicked)
        return {}

    def _click(self, clicked: str) -> None:
        visit = self._visit
        if clicked == pages.BACK.lower():
            self._visit = Visit()
        elif clicked == pages.NEXT.lower():
            visit.number += 1
        elif clicked == pages.PREVIOUS.lower():
            self._turn_back()
        elif clicked == pages.BUY.lower():
            visit.page = "done"
        elif visit.page == "results":
            visit.page, visit.asin, visit.chosen = "item", clicked.upper(), {}
        elif clicked in (detail.lower() for detail in pages.DETAILS):
            visit.page, visit.detail = "detail", clicked.capitalize()
        elif visit.page == "item":
            name = next(name for name, values in self._product.options.items() if clicked in values)
            visit.chosen[name] = clicked

    def _turn_back(self) -> None:
        """One page back: within the results, from a product to them, from a detail to its product."""
        visit = self._visit
        if visit.page == "results":
            visit.number -= 1
        elif visit.page == "item":
            visit.page, visit.asin, visit.chosen = "results", "", {}
        else:
            visit.page, visit.detail = "item", ""

    def _page(self) -> Page:
        visit, instruction = self._visit, self._asked.instruction
        if visit.page == "search":
            return pages.search_page(instruction)
        if visit.page == "results":
            return pages.results_page(instruction, self._shop.search(visit.keywords), visit.number)
        if visit.page == "item":
            return pages.item_page(instruction, self._product, visit.chosen)
        if visit.page == "detail":
            return pages.detail_page(instruction, self._product, visit.detail)
        return pages.done_page(self._score.reward if self._score else 0.0)

    def _observation(self) -> Observation:
        return Observation(" [SEP] ".join(self._page().pieces))

    def _options_wanted(self, product: Product) -> dict[str, str]:
        """The product's options that fit what is asked for."""
        return {
            name: value
            for wanted in self._asked.wish.options
            for name, values in product.options.items()
            for value in sorted(values, key=lambda value: value != wanted)
            if fits_option(name, value, wanted)
        }

    def _would_pay_in_full(self, product: Product) -> bool:
        return score(self._asked, product, self._options_wanted(product)).reward == 1.0
