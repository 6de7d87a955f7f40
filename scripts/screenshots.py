"""Screenshots of the page for docs/images: python scripts/screenshots.py runs/maze-grpo [runs/maze-ppo …]

The first run is shown, all of them are compared. It takes the package's dev extra and Debian's chromium.
"""

import argparse
import os
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "viewer"))

from browser import ARGUMENTS, CHROMIUM  # noqa: E402

from openmanus_rl.viewer.run import RunView  # noqa: E402
from openmanus_rl.viewer.serve import ViewerServer  # noqa: E402

WIDTH, HEIGHT = 1200, 820


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "images")
    given = parser.parse_args()
    runs, output = [run.resolve() for run in given.runs], given.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as directory:
        shown = Path(directory) / "runs"
        shown.mkdir()
        for run in runs:
            (shown / run.name).symlink_to(run)
        os.chdir(directory)
        server = ViewerServer(Path("runs"))
        threading.Thread(target=server.run, daemon=True).start()
        take_all(server.url, runs, output)
        server.stop()


def take_all(url: str, runs: list[Path], output: Path) -> None:
    name = quote(runs[0].name)
    file, number = longest_trained(runs[0])
    views = {
        "run": f"#/run/{name}",
        "episodes": f"#/run/{name}/episodes",
        "episode": f"#/run/{name}/episode/{file}/{number}",
        "group": f"#/run/{name}/group/{file}/{group_of(runs[0], file, number)}",
        "compare": "#/compare?" + "&".join(f"run={quote(run.name)}" for run in runs),
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for scheme in ("light", "dark"):
            context = browser.new_context(color_scheme=scheme, viewport={"width": WIDTH, "height": HEIGHT})
            page = context.new_page()
            for view, address in views.items():
                page.goto(url + address)
                page.reload()
                settle(page, view)
                page.screenshot(path=output / f"{view}-{scheme}.png")
            context.close()
        browser.close()


def settle(page: Page, view: str) -> None:
    """Wait until the view is drawn; on an episode point at a token."""
    page.wait_for_selector("h1")
    page.wait_for_timeout(800)
    if view == "episode":
        page.locator(".conversation .token").nth(4).hover()
        page.wait_for_timeout(100)


def longest_trained(run: Path) -> tuple[str, int]:
    """An episode of the last steps that was trained on and has something to show."""
    view = RunView(run)
    view.episodes.refresh(seconds=60)
    rows = [row for row in view.episodes.rows if row.entry.trained] or view.episodes.rows
    row = max(rows[-64:], key=lambda row: (row.entry.success, row.entry.turns < 7, row.entry.turns))
    return row.file, row.entry.number


def group_of(run: Path, file: str, number: int) -> int:
    view = RunView(run)
    view.episodes.refresh(seconds=60)
    return view.episodes.find(file, number).entry.group


if __name__ == "__main__":
    main()
