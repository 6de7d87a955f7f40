"""A shop: its products, its search engine and what its buyers ask for. Built once in a process for the same options."""

import random
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from openmanus_rl.envs.bm25 import Bm25Index
from openmanus_rl.envs.items import pick, seeded
from openmanus_rl.envs.webshop.catalogue import Product, make_catalogue
from openmanus_rl.envs.webshop.files import read_products
from openmanus_rl.envs.webshop.reward import Goal
from openmanus_rl.errors import UserError

FOUND = 50
"""How many products a search finds at most."""

_GOAL_ORDER = 233
"""The seed by which WebShop orders its goals; by it, number n of the original files is number n there."""


class Shop:
    """Products by asin, goals by number, and a search."""

    def __init__(self, products: Sequence[Product], goals: Sequence[Goal]) -> None:
        self.products = {product.asin: product for product in products}
        self.goals = goals
        self._places = list(products)
        self._index = Bm25Index(product.searchable for product in products)
        self._remembered = lru_cache(maxsize=2048)(self._search)

    def search(self, keywords: str) -> tuple[Product, ...]:
        """The products found, best first."""
        return self._remembered(keywords)

    def _search(self, keywords: str) -> tuple[Product, ...]:
        return tuple(self._places[place] for place in self._index.search(keywords, FOUND))


@lru_cache(maxsize=4)
def own_shop(num_products: int, seed: int) -> Shop:
    """The shop with the generated catalogue; goal n is what the buyer of product n asks for."""
    products = make_catalogue(num_products, seed)
    return Shop(products, _goals(products))


@lru_cache(maxsize=2)
def shop_from_files(directory: str, num_products: int, human_instructions: bool) -> Shop:
    """A shop with WebShop's own product files; goal n is the one that WebShop calls n."""
    products = read_products(Path(directory), num_products, human_instructions)
    goals = _goals(products)
    if not goals:
        raise UserError(
            f"webshop: none of the first {num_products} products in {directory} has an instruction",
            "Raise env.options.num_products, or look at env.options.human_instructions.",
        )
    random.Random(_GOAL_ORDER).shuffle(goals)
    return Shop(products, goals)


def _goals(products: Sequence[Product]) -> list[Goal]:
    return [Goal(product, wish, _price_bound(product)) for product in products for wish in product.wishes]


def _price_bound(product: Product) -> float | None:
    """WebShop's rule: the higher of two of the next four tens above the price; none for what costs more than 970."""
    tens = [10.0 * ten for ten in range(1, 100) if 10.0 * ten > product.price][:4]
    if len(tens) < 2:
        return None
    chance = seeded(f"webshop bound {product.asin}")
    first = pick(tens, chance.random())
    second = pick([ten for ten in tens if ten != first], chance.random())
    return max(first, second)
