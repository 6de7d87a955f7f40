"""The shop's pages as text: what each shows, and what on it can be clicked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from openmanus_rl.envs.webshop.catalogue import Product

PER_PAGE = 10

BACK = "Back to Search"
NEXT = "Next >"
PREVIOUS = "< Prev"
BUY = "Buy Now"
DETAILS = ("Description", "Features", "Reviews")

PageName = Literal["search", "results", "item", "detail", "done"]


@dataclass
class Visit:
    """Where in the shop a buyer is."""

    page: PageName = "search"
    keywords: str = ""
    number: int = 1
    """Which page of the results."""
    asin: str = ""
    detail: str = ""
    chosen: dict[str, str] = field(default_factory=dict)
    """Options by name."""

    @classmethod
    def load(cls, saved: Mapping[str, Any]) -> "Visit":
        return cls(**{**saved, "chosen": dict(saved["chosen"])})


@dataclass(frozen=True)
class Page:
    """What is seen, piece by piece, and the buttons and links among it."""

    pieces: Sequence[str]
    clickables: Sequence[str]
    has_search_bar: bool = False


def search_page(instruction: str) -> Page:
    return Page(["WebShop", "Instruction:", instruction, "Search"], ["Search"], has_search_bar=True)


def results_page(instruction: str, found: Sequence[Product], number: int) -> Page:
    """Ten products, and ways to the pages before and after."""
    shown = found[(number - 1) * PER_PAGE : number * PER_PAGE]
    ways = [BACK]
    if number > 1:
        ways.append(PREVIOUS)
    if number * PER_PAGE < len(found):
        ways.append(NEXT)
    listed = [piece for product in shown for piece in (product.asin, product.title, product.price_tag)]
    pieces = ["Instruction:", instruction, BACK, f"Page {number} (Total results: {len(found)})", *ways[1:], *listed]
    return Page(pieces, [*ways, *(product.asin for product in shown)])


def item_page(instruction: str, product: Product, chosen: Mapping[str, str]) -> Page:
    """A product with its options; those that are chosen are named at the top."""
    values = [value for choices in product.options.values() for value in choices]
    pieces = [
        *(f"You have clicked {value}." for value in chosen.values()),
        "Instruction:",
        instruction,
        BACK,
        PREVIOUS,
        *(piece for name, choices in product.options.items() for piece in (name, *choices)),
        product.title,
        f"Price: {product.price_tag}",
        f"Rating: {product.rating}",
        *DETAILS,
        BUY,
    ]
    return Page(pieces, [BACK, PREVIOUS, *DETAILS, BUY, *values])


def detail_page(instruction: str, product: Product, detail: str) -> Page:
    told = {
        "Description": [product.description],
        "Features": list(product.features),
        "Reviews": list(product.reviews) or ["There are no reviews yet."],
    }
    return Page(["Instruction:", instruction, BACK, PREVIOUS, *told[detail]], [BACK, PREVIOUS])


def done_page(reward: float) -> Page:
    return Page(["Thank you for shopping with us!", "Your score (min 0.0, max 1.0)", f"{reward:.4g}"], [])
