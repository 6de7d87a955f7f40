"""How soon the page shows what there is, and what it costs a run to be watched.

    python bench/viewer.py large [EPISODES]     first paint, filters and news on a run of 100,000 episodes, 10,000 steps
    python bench/viewer.py watched [STEPS]      a run's seconds a step with the page open and without, in turns

Both sides are real: the server in a process of its own, and Debian's chromium, on the machine that trains.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "viewer"))

from browser import ARGUMENTS, CHROMIUM  # noqa: E402
from made_runs import credit, episode, make_run, metrics_at, pieces, validation_at  # noqa: E402

from openmanus_rl.agent.records import RecordDetails, episode_line  # noqa: E402
from openmanus_rl.tracking.episode_index import append_to_index, index_lines  # noqa: E402
from openmanus_rl.tracking.metrics import MetricsLog  # noqa: E402

STEPS = 10_000
ROUNDS = 3
LETTER = 0.08
"""Seconds that a letter takes to be typed."""
BLOCK = 3
"""Steps in a row with the page open, and then without."""


def main() -> None:
    what, amount = [*sys.argv[1:], "", ""][:2]
    if what == "large":
        large(int(amount or 100_000))
    elif what == "watched":
        watched(int(amount or 60))
    else:
        sys.exit(__doc__)


def large(episodes: int) -> None:
    with TemporaryDirectory() as directory, chromium_page() as page:
        run = make_large_run(Path(directory) / "run", episodes)
        size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
        print(f"{episodes:,} episodes, {STEPS:,} steps, {size / 1e6:.0f} MB")
        paints = [first_paint(page, run) for _ in range(ROUNDS)]
        report("first paint, server just started", paints)
        report("first search", [first_search(page, run, f"maze_{at * 977 + 13}", episodes) for at in range(ROUNDS)])
        with served(run) as url:
            page.goto(f"{url}#/run/run/episodes")
            count = page.locator(".title-row [role=status]")
            told(count, f"{episodes:,} episodes")
            report(
                "list of episodes, server warm",
                [seconds(lambda: open_list(page, count, episodes)) for _ in range(ROUNDS)],
            )
            report("filter by outcome", [choose(page, "outcome", ["success", "miss"][at % 2]) for at in range(ROUNDS)])
            report("filter by kind", [choose(page, "kind", ["train", "validation"][at % 2]) for at in range(ROUNDS)])
            page.get_by_role("button", name="Clear").click()
            told(count, f"{episodes:,} episodes")
            search(page, "maze_1")
            report("search, texts read before", [search(page, f"maze_{at * 977 + 13}") for at in range(ROUNDS)])
            page.goto(f"{url}#/run/run")
            page.wait_for_selector(".hero .chart")
            log = MetricsLog(run / "metrics.jsonl")
            report("a new step is shown", [news(page, log, STEPS + 1 + at) for at in range(ROUNDS)])


def first_paint(page: Page, run: Path) -> float:
    with served(run) as url:
        page.goto("about:blank")
        return seconds(lambda: (page.goto(f"{url}#/run/run"), page.wait_for_selector(".hero canvas")))


def open_list(page: Page, count: Any, episodes: int) -> None:
    page.reload()
    told(count, f"{episodes:,} episodes")
    page.wait_for_selector(".virtual a.episode-row")


def choose(page: Page, name: str, value: str) -> float:
    before = page.locator(".title-row [role=status]").inner_text()
    changed = f"document.querySelector('.title-row [role=status]').textContent !== {json.dumps(before)}"
    return seconds(lambda: (page.locator(f"[name={name}]").select_option(value), page.wait_for_function(changed)))


def first_search(page: Page, run: Path, words: str, episodes: int) -> float:
    """With a server that has read no text yet."""
    with served(run) as url:
        page.goto("about:blank")
        page.goto(f"{url}#/run/run/episodes")
        told(page.locator(".title-row [role=status]"), f"{episodes:,} episodes")
        return search(page, words)


def search(page: Page, words: str) -> float:
    """As a person does it, letter by letter; from the last letter to the first row that has the words."""
    found = f"document.querySelector('.virtual a.episode-row .grow')?.textContent.startsWith({json.dumps(words)})"
    page.locator("[name=text]").click()
    page.locator("[name=text]").fill("")
    for letter in words[:-1]:
        page.keyboard.type(letter)
        time.sleep(LETTER)
    return seconds(lambda: (page.keyboard.type(words[-1]), page.wait_for_function(found)))


def news(page: Page, log: MetricsLog, step: int) -> float:
    log.append(step, metrics_at(step))
    shown = f"document.querySelector('.progress-text').textContent.includes('step {step:,} of')"
    return seconds(lambda: page.wait_for_function(shown))


def make_large_run(path: Path, episodes: int) -> Path:
    """As `EpisodeLog` writes it, without waiting for the disk at each of ten thousand files."""
    make_run(path, steps=4)
    details = RecordDetails(pieces=pieces, credit=credit, step=0)
    lines = [
        episode_line(episode(at, at % 8, at % 4, ("up", "left", "down", "right"), success=at % 3 == 0), details)
        for at in range(64)
    ]
    a_step = episodes // (STEPS + STEPS // 100 * 10)
    at = 0
    with MetricsLog(path / "metrics.jsonl").path.open("a") as metrics:
        for step in range(5, STEPS + 1):
            values = metrics_at(step)
            kinds = {"train": a_step}
            if step % 100 == 0 or step == STEPS:
                values |= validation_at(step, 0.8)
                kinds["validation"] = a_step * 10 if step < STEPS else episodes - at - a_step - 36
            metrics.write(json.dumps({"step": step, "time": 1.7e9 + step, **values}) + "\n")
            for kind, count in kinds.items():
                name = f"{kind}_step_{step:06d}.jsonl"
                written = [renamed(lines[(at + number) % 64], at + number) for number in range(max(0, count))]
                at += len(written)
                (path / "episodes" / name).write_bytes(b"".join(written))
                append_to_index(path / "episodes", index_lines(name, written)[0])
    return path


def renamed(line: str, number: int) -> bytes:
    """The same episode of another task."""
    head, _, tail = line.partition('"item_id": "')
    return f'{head}"item_id": "maze_{number}{tail[tail.index(chr(34)) :]}'.encode()


def watched(steps: int) -> None:
    """The page opens and closes every few steps of one run that learns nothing, so that all its steps are alike."""
    with TemporaryDirectory() as directory, chromium_page() as page:
        command = [
            sys.executable,
            "-m",
            "openmanus_rl.cli",
            "train",
            f"trainer.runs_dir={directory}",
            f"trainer.steps={steps}",
        ]
        command += ["trainer.validate_every=1000", "trainer.save_every=1000", "actor.lr=1e-9", "trainer.threads=1"]
        run = Path(directory) / "maze-grpo"
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as training:
            while not (run / "metrics.jsonl").exists() and training.poll() is None:
                time.sleep(0.2)
            open_at: dict[int, bool] = {}
            with served(Path(directory)) as url:
                while training.poll() is None:
                    step = steps_of(run)[-1]["step"] if steps_of(run) else 0
                    is_open = step // BLOCK % 2 == 0
                    if open_at.get(step) is None:
                        open_at[step + 1] = is_open
                        if is_open != (page.url != "about:blank"):
                            page.goto(f"{url}#/run/maze-grpo" if is_open else "about:blank")
                            open_at[step + 1] = None  # half of it was the other way
                    time.sleep(0.05)
        took = {line["step"]: line["timing_s/step"] for line in steps_of(run) if "timing_s/step" in line}
        sides = [
            [took[step] for step, was in open_at.items() if was is side and step in took] for side in (False, True)
        ]
        without, with_page = (statistics.median(side) for side in sides)
        print(f"{len(sides[0])} steps alone, median {without:.3f} s; {len(sides[1])} watched, {with_page:.3f} s")
        print(f"ratio {without / with_page:.3f}")


def steps_of(run: Path) -> list[dict[str, Any]]:
    text = (run / "metrics.jsonl").read_text().rpartition("\n")[0]
    return [json.loads(line) for line in text.splitlines()]


@contextmanager
def served(root: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "openmanus_rl.cli", "view", str(root), "--with-stdin"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().rpartition(" ")[2].strip()
    finally:
        server.communicate()


@contextmanager
def chromium_page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        # Waiting for a condition evaluates it in the page, which its policy forbids.
        yield browser.new_page(viewport={"width": 1280, "height": 900}, bypass_csp=True)
        browser.close()


def told(locator: Any, text: str) -> None:
    locator.filter(has_text=text).wait_for()


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def report(what: str, times: list[float]) -> None:
    print(f"{what}: median {statistics.median(times):.2f} s, slowest {max(times):.2f} s of {len(times)}")


if __name__ == "__main__":
    main()
