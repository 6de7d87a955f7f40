"""WebShop's reward (Yao et al. 2022): how well what was bought fits what was asked for, from 0 to 1.

    reward = r_type · (attributes met + options met + [price within the bound]) / (attributes + options asked for + 1)

`r_type` is 1 for the same kind of product and falls to 0.5, 0.1 or 0 where neither the search that would find it, nor
its categories, nor its title fit. WebShop compares the nouns of two titles, found by a language model; here it is the
words of the title that are neither function words nor attributes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from openmanus_rl.envs.text import FUNCTION_WORDS, plain_words
from openmanus_rl.envs.webshop.catalogue import Product, Wish

ALIKE = 0.85
"""From this similarity on, two phrases count as the same."""

_COLOURS = re.compile("black|white|gr[ea]y|silver|gold|navy|blue|green|yellow|orange|red|pink|purple|brown|beige")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Goal:
    """A task: buy what `wish` asks for. `product` is one that fits; others may too."""

    product: Product
    wish: Wish
    highest_price: float | None
    """None where the instruction names no price."""

    @property
    def instruction(self) -> str:
        if self.highest_price is None:
            return self.wish.text
        return f"{self.wish.text}, and price lower than {self.highest_price:.2f} dollars"


@dataclass(frozen=True)
class Score:
    """The reward and its parts."""

    kind: float
    attributes_met: int
    options_met: int
    price_met: bool
    asked: int

    @property
    def reward(self) -> float:
        return self.kind * (self.attributes_met + self.options_met + self.price_met) / self.asked


def score(goal: Goal, bought: Product, chosen: Mapping[str, str]) -> Score:
    """What buying `bought` with the chosen options is worth."""
    return Score(
        kind=kind_score(bought, goal.product),
        attributes_met=sum(has_attribute(bought, attribute) for attribute in goal.wish.attributes),
        options_met=sum(any(fits_option(*option, wanted) for option in chosen.items()) for wanted in goal.wish.options),
        price_met=goal.highest_price is None or bought.price <= goal.highest_price,
        asked=len(goal.wish.attributes) + len(goal.wish.options) + 1,
    )


def kind_score(bought: Product, wanted: Product) -> float:
    """Whether it is the right kind of thing at all."""
    wanted_words = _title_words(wanted)
    common = len(wanted_words & _title_words(bought))
    title = common / len(wanted_words) if wanted_words else 0.2
    if title == 0.0:
        return 0.0
    if title < 0.1:
        return 0.1
    same_shelf = len(_categories(bought) & _categories(wanted)) >= 2
    return 1.0 if bought.query == wanted.query or same_shelf or title > 0.2 else 0.5


def has_attribute(product: Product, attribute: str) -> bool:
    """Whether the product is known for it, or any of its pages tells it."""
    if any(similarity(attribute, known) > ALIKE for known in product.attributes):
        return True
    told = (product.title, " ".join(product.features), product.description)
    return any(attribute in text.lower() for text in told)


def fits_option(name: str, value: str, wanted: str) -> bool:
    """Whether an option's value is the one wanted: a size to the letter, a number to the digit, others nearly."""
    if name.lower() == "size" or _NUMBER.findall(value) != _NUMBER.findall(wanted):
        return value == wanted
    return similarity(_plain_colour(value), _plain_colour(wanted)) > ALIKE


def similarity(first: str, second: str) -> float:
    """Token-set ratio: 1 where the words of one phrase are all in the other, else how alike the spellings are."""
    left, right = set(plain_words(first)), set(plain_words(second))
    common = " ".join(sorted(left & right))
    if not left or not right:
        return 0.0
    if common and (left <= right or right <= left):
        return 1.0
    longer = [f"{common} {' '.join(sorted(rest))}".strip() for rest in (left - right, right - left)]
    pairs = [(longer[0], longer[1])] + ([(common, text) for text in longer] if common else [])
    return max(_ratio(one, other) for one, other in pairs)


def _ratio(one: str, other: str) -> float:
    """Twice the longest common subsequence of characters, over the length of both."""
    row = [0] * (len(other) + 1)
    for letter in one:
        diagonal = 0
        for place, against in enumerate(other, 1):
            above = row[place]
            row[place] = diagonal + 1 if letter == against else max(above, row[place - 1])
            diagonal = above
    return 2 * row[-1] / (len(one) + len(other))


def _plain_colour(value: str) -> str:
    """`navy blue stripes` is navy to a buyer; what names no colour stays as it is."""
    found = _COLOURS.search(value)
    return found[0] if found else value


def _title_words(product: Product) -> set[str]:
    attributes = {word for attribute in product.attributes for word in plain_words(attribute)}
    return {word for word in plain_words(product.title) if word.isalpha()} - FUNCTION_WORDS - attributes


def _categories(product: Product) -> set[str]:
    return {part.strip() for part in product.path.split("›")}
