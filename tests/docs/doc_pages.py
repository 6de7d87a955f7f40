"""The pages of the project as data: fenced blocks, the commands in them, tables, links, headings."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ASSIGNMENTS = re.compile(r"^(?:[A-Za-z_]\w*=(?:\$\(.*\)|\S*)\s*)+")


@dataclass(frozen=True)
class Block:
    """A fenced block, and the output that stands right below it, if any."""

    page: Path
    line: int
    language: str
    text: str
    output: str | None

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @cached_property
    def commands(self) -> list[str]:
        """The commands of a bash block, without comments, variables and the virtualenv's directory."""
        lines = [line.strip() for line in self.text.replace("\\\n", " ").splitlines()]
        commands = [_ASSIGNMENTS.sub("", re.sub(r"(^|\s)#.*$", "", line)).strip() for line in lines]
        return [command.removeprefix(".venv/bin/") for command in commands if command]


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    matches = list(_FENCE.finditer(text))
    found = []
    for index, match in enumerate(matches):
        output = None
        for following in matches[index + 1 : index + 2]:
            if following[1] in ("text", "json") and not text[match.end() : following.start()].strip():
                output = following[2]
        found.append(Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2], output))
    return found


def blocks_in(language: str, *pages: Path) -> list[Block]:
    return [block for page in pages or PAGES for block in blocks(page) if block.language == language]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page may be."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def section(page: Path, heading: str) -> str:
    """The text below a heading, up to the next one."""
    _, found, rest = page.read_text(encoding="utf-8").partition(f"\n{heading}\n")
    assert found, f"{page.name} has no heading {heading!r}"
    return re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def table(text: str) -> list[list[str]]:
    """The rows of the first table in a text, without its head."""
    first = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert first, "there is no table"
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in first[0].splitlines()]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def code(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)
