"""WebShop's own product files: `items_shuffle.json`, `items_ins_v2.json`, and people's words in `items_human_ins.json`.

A file cut to its first thousand products is named with `_1000` at its end there, and is taken where the whole is not.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import product as combinations
from pathlib import Path
from typing import Any

from openmanus_rl.envs.given_files import lacking, read_json
from openmanus_rl.envs.items import seeded
from openmanus_rl.envs.webshop.catalogue import Product, Wish, with_options
from openmanus_rl.errors import UserError

_PRICE = re.compile(r"\$\s*([\d,]+(?:\.\d+)?)")
_UNPRICED = 100.0
"""What WebShop asks for a product whose price is not known."""


def read_products(directory: Path, count: int, human_instructions: bool) -> list[Product]:
    """The first `count` products of the file that have a proper asin, each once, with what buyers ask of them."""
    attributes = _read(directory, "items_ins_v2", dict)
    people = _read(directory, "items_human_ins", dict) if human_instructions else {}
    reviews = _reviews(directory)
    products: dict[str, Product] = {}
    for place, entry in enumerate(_read(directory, "items_shuffle", list)[:count], 1):
        try:
            asin = entry["asin"]
            if asin == "nan" or len(asin) > 10 or asin in products:
                continue
            known = attributes.get(asin, {})
            options = _options(entry.get("customization_options") or {})
            wishes = _human_wishes(people.get(asin, [])) if human_instructions else _made_wishes(known, options)
            products[asin] = _product(entry, known, options, wishes, reviews.get(asin, {}))
        except (KeyError, TypeError, AttributeError) as error:
            raise lacking(directory / "items_shuffle.json", "webshop", "data_dir", place, error) from error
    return list(products.values())


def _product(
    entry: Mapping[str, Any],
    known: Mapping[str, Any],
    options: dict[str, tuple[str, ...]],
    wishes: Sequence[Wish],
    reviews: Mapping[str, Any],
) -> Product:
    price, tag = _price(entry)
    told = entry.get("small_description") or []
    return Product(
        asin=entry["asin"],
        title=entry["name"],
        query=entry["query"].lower().strip(),
        path=entry["product_category"],
        price=price,
        price_tag=tag,
        attributes=tuple(known.get("attributes", ())),
        options=options,
        features=tuple(told) if isinstance(told, list) else (told,),
        description=entry.get("full_description") or "",
        reviews=tuple(_review(review) for review in reviews.get("reviews", ())),
        rating=str(reviews.get("average_rating", "N.A.")),
        wishes=tuple(wishes),
    )


def _reviews(directory: Path) -> dict[str, Mapping[str, Any]]:
    """What was said of each product, where the file is there."""
    path = directory / "reviews.json"
    reviews = {}
    for place, entry in enumerate(read_json(path, "webshop", "data_dir", list) if path.is_file() else (), 1):
        try:
            reviews[entry["asin"]] = entry
        except (KeyError, TypeError) as error:
            raise lacking(path, "webshop", "data_dir", place, error) from error
    return reviews


def _read(directory: Path, name: str, kind: type[list[Any]] | type[dict[str, Any]]) -> Any:
    for path in (directory / f"{name}.json", directory / f"{name}_1000.json"):
        if path.is_file():
            return read_json(path, "webshop", "data_dir", kind)
    raise UserError(
        f"webshop: there is no {name}.json in {directory}",
        "env.options.data_dir is the directory with WebShop's product files.",
    )


def _options(listed: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {
        name.lower(): tuple(dict.fromkeys(choice["value"].strip().replace("/", " | ").lower() for choice in choices))
        for name, choices in listed.items()
        if choices is not None
    }


def _price(entry: Mapping[str, Any]) -> tuple[float, str]:
    """The price, and how the page shows it. Where a range is given, the price lies in it, always at the same place."""
    prices = [float(text.replace(",", "")) for text in _PRICE.findall(entry.get("pricing") or "")]
    if not prices:
        return _UNPRICED, f"${_UNPRICED}"
    if len(prices) == 1:
        return prices[0], f"${prices[0]}"
    low, high = prices[:2]
    return low + (high - low) * seeded(f"webshop price {entry['asin']}").random(), f"${low} to ${high}"


def _human_wishes(instructions: list[dict[str, Any]]) -> list[Wish]:
    return [
        Wish(said["instruction"].strip("."), tuple(said["instruction_attributes"]), tuple(said["instruction_options"]))
        for said in instructions
        if said["instruction_attributes"]
    ]


def _made_wishes(known: Mapping[str, Any], options: Mapping[str, tuple[str, ...]]) -> list[Wish]:
    """One for each combination of the product's options."""
    if not known.get("instruction"):
        return []
    names = sorted(options)
    chosen = (dict(zip(names, values, strict=True)) for values in combinations(*(options[name] for name in names)))
    attributes = tuple(known["instruction_attributes"])
    return [Wish(known["instruction"] + with_options(choice), attributes, tuple(choice.values())) for choice in chosen]


def _review(review: Mapping[str, Any]) -> str:
    words = [str(review.get(key, "")).strip() for key in ("title", "review", "body")]
    return " ".join(word for word in words if word)
