"""One run as its directory tells it: what the page asks of a run is answered here."""

import json
import math
import os
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from threading import RLock
from typing import Any

import yaml

from openmanus_rl.tracking.run_directory import RunPaths
from openmanus_rl.tracking.stats import wilson
from openmanus_rl.viewer.episodes import EpisodeTable, Row
from openmanus_rl.viewer.filters import Filter, filter_from, in_order, is_sample, was_played
from openmanus_rl.viewer.jsons import for_page
from openmanus_rl.viewer.metrics import MetricColumns
from openmanus_rl.viewer.search import Search, TextMemory
from openmanus_rl.viewer.tail import Tail

KEPT_LISTS = 16
"""Filtered lists that stay in memory, so that scrolling does not filter again."""
LARGEST_PAGE = 500
MOST_EVENTS = 500
"""Checkpoints that are told of, and as many other events: a long run's many checkpoints hide no alarm."""
READING = "\0reading"
"""What stands for the words of a search whose words are not known yet."""


class RunView:
    """A run directory that may be growing. Every method looks at what is new first; none of them writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.paths = RunPaths(path)
        self.metrics = MetricColumns(self.paths.metrics)
        self.episodes = EpisodeTable(self._episode_directory())
        self._events_tail = Tail(self.paths.events)
        self._events: list[dict[str, Any]] = []
        self._broken_events = 0
        self._lists: OrderedDict[tuple[Any, ...], list[Row] | Search] = OrderedDict()
        self._texts = TextMemory()
        self._counted: dict[str, Any] = {}
        self._counted_version = -1
        self._config: dict[str, Any] = {}
        self._config_written: tuple[int, ...] = ()
        self._lock = RLock()

    def state(self) -> dict[str, Any]:
        """Numbers that change whenever there is something new to show."""
        with self._lock:
            self._refresh()
            return self._state()

    def brief(self) -> dict[str, Any]:
        """A line in the list of runs. Episodes are not looked at for it."""
        with self._lock:
            self._refresh_log()
            config = self.config()
            envs = config.get("envs")
            other = self._started().get(
                "algorithm"
            )  # sft, evolve, dpo: what their config says of training is not theirs
            return {
                "name": self.path.name,
                "status": self._status(),
                "env": "+".join(map(str, envs if isinstance(envs, list | dict) else [])) or _at(config, "env", "name"),
                "algorithm": other or _at(config, "algorithm", "estimator"),
                "steps": None if other else _at(config, "trainer", "steps"),
                "step": self.metrics.steps[-1] if self.metrics.steps else None,
                "success": self.success(),
                "changed": max(_modified_at(self.paths.metrics), _modified_at(self.paths.config)) or None,
            }

    def overview(self) -> dict[str, Any]:
        """All that the page of a run shows beside its charts."""
        with self._lock:
            self._refresh()
            return {
                **self.brief(),
                "state": self._state(),
                "path": str(self.path),
                "config": self.config(),
                "preset": self._preset(),
                "events": self._last_events(),
                "checkpoints": _checkpoint_steps(self.paths.checkpoints),
                "summary": _read_json(self.paths.summary),
                "metrics": sorted(self.metrics.columns),
                "latest": {name: self.metrics.last(name) for name in self.metrics.columns},
                "first_step": self.metrics.steps[0] if self.metrics.steps else None,
                "lines": len(self.metrics.steps),
                "episodes": len(self.episodes.rows),
                **self._of_episodes(),
                "waiting": len(self.episodes.waiting),
                "problems": self.problems(),
            }

    def chart(self, names: list[str], points: int, low: float, high: float) -> dict[str, Any]:
        """Columns of metrics; see `MetricColumns.chart`."""
        with self._lock:
            self.metrics.refresh()
            return self.metrics.chart(names, points, low, high)

    def list_episodes(self, words: Mapping[str, str], offset: int, limit: int) -> dict[str, Any]:
        """A page of the episodes that fit, how many do, and how far a search for text has come."""
        with self._lock:
            self._refresh_episodes()
            rows = self._listed(words)
            searched = None
            if isinstance(rows, Search):
                rows.go_on(offset + limit)
                searched = {"searched": rows.searched, "of": len(rows.candidates), "done": rows.is_done}
                rows = rows.found
            return {
                "total": len(self.episodes.rows),
                "matched": len(rows),
                "offset": offset,
                "rows": [row.to_dict() for row in rows[offset : offset + min(limit, LARGEST_PAGE)]],
                "search": searched,
                "waiting": len(self.episodes.waiting),
                "version": self.episodes.version,
            }

    def read_ahead(self, words: Mapping[str, str]) -> dict[str, Any]:
        """Read some of the texts that a search in this list will want, before there is a word to search for."""
        with self._lock:
            self._refresh_episodes()
            reading = self._listed({**words, "text": READING})
            assert isinstance(reading, Search)
            return {"done": reading.read_ahead()}

    def episode(self, file: str, number: int) -> dict[str, Any]:
        """One episode: its record, and those that were played on the same task at the same step."""
        with self._lock:
            self._refresh_episodes()
            row = self.episodes.find(file, number)
            numbers = [other.entry.number for other in self.episodes.of_file(file)]
            place = numbers.index(number)
            return {
                "row": row.to_dict(),
                "record": for_page(self.episodes.record(row)),
                "siblings": [other.to_dict() for other in self._group(file, row.entry.group)],
                "previous": numbers[place - 1] if place else None,
                "next": numbers[place + 1] if place + 1 < len(numbers) else None,
                "path": _as_typed(self.episodes.directory / file),
            }

    def group(self, file: str, group: int) -> dict[str, Any]:
        """The episodes of one task at one step, without their tokens."""
        with self._lock:
            self._refresh_episodes()
            played = []
            for row in self._group(file, group):
                record = self.episodes.record(row)
                played.append({"row": row.to_dict(), "task": record.get("task"), "turns": record["turns"]})
            return {"file": file, "group": group, "episodes": played}

    def config(self) -> dict[str, Any]:
        """The resolved config; {} if there is none, or none that can be read."""
        try:
            status = self.paths.config.stat()
            written = (status.st_mtime_ns, status.st_size, status.st_ino)
            if written != self._config_written:
                self._config, self._config_written = {}, written
                tree = yaml.load(self.paths.config.read_text(encoding="utf-8"), Loader=_LOADER)
                self._config = tree if isinstance(tree, dict) else {}
        except OSError:
            return {}
        except (ValueError, yaml.YAMLError):
            pass  # `problems` tells it
        return self._config

    def success(self) -> dict[str, Any] | None:
        """The last held-out success with its interval."""
        rate, n = self.metrics.last("val/success/rate"), self.metrics.last("val/success/n")
        if rate is None or not n or not 0 <= rate <= 1 or not math.isfinite(n):
            return None
        interval = wilson(round(rate * n), int(n))
        return {**interval.to_dict(), "step": self.metrics.last_step_of("val/success/rate")}

    def problems(self) -> list[str]:
        """What in the directory could not be read, in words."""
        told = list(self.episodes.problems)
        if self.metrics.broken_lines:
            told.append(f"metrics.jsonl: {self.metrics.broken_lines} lines are not metrics")
        if self._broken_events:
            told.append(f"events.jsonl: {self._broken_events} lines are not events")
        if self._status() != "running":  # else its end may be on the way
            tails = (self.metrics.tail, self._events_tail)
            told += [f"{tail.path.name}: its last line is cut off" for tail in tails if tail.has_unfinished]
        if self.paths.config.is_file() and not self.config():
            told.append("config.yaml cannot be read")
        return told

    def _refresh(self) -> None:
        self._refresh_log()
        self._refresh_episodes()

    def _refresh_episodes(self) -> None:
        directory = self._episode_directory()
        if directory != self.episodes.directory:
            self.episodes = EpisodeTable(directory, self.episodes.version + 1)
            self._texts = TextMemory()
        self.episodes.refresh()

    def _episode_directory(self) -> Path:
        """Where a run writes them, or where they lie that an evaluation kept."""
        return self.paths.episodes if self.paths.episodes.is_dir() else self.path

    def _refresh_log(self) -> None:
        self.metrics.refresh()
        replaced, lines = self._events_tail.new_lines()
        if replaced:
            self._events, self._broken_events = [], 0
        for line in lines:
            try:
                event = json.loads(line)
                self._events.append({**event, "event": str(event["event"])})
            except (ValueError, KeyError, TypeError):
                self._broken_events += 1

    def _last_events(self) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        room = {True: MOST_EVENTS, False: MOST_EVENTS}
        for event in reversed(self._events):
            is_checkpoint = event["event"] == "checkpoint"
            if room[is_checkpoint]:
                room[is_checkpoint] -= 1
                told.append(event)
        return told[::-1]

    def _listed(self, words: Mapping[str, str]) -> list[Row] | Search:
        """The rows of a list, from the last time if nothing has changed."""
        key = (self.episodes.version, *sorted(words.items()))
        if key not in self._lists:
            self._lists[key] = self._searched(words) if words.get("text") else self._ordered(words)
            while len(self._lists) > KEPT_LISTS:
                self._lists.popitem(last=False)
        self._lists.move_to_end(key)
        return self._lists[key]

    def _searched(self, words: Mapping[str, str]) -> Search:
        """A search in the list that the other words make."""
        candidates = self._listed({name: word for name, word in words.items() if name != "text"})
        assert not isinstance(candidates, Search)
        return Search(self.episodes, candidates, words["text"], self._texts)

    def _ordered(self, words: Mapping[str, str]) -> list[Row]:
        rows = self.episodes.rows
        wanted = filter_from(words)
        if wanted != Filter():
            rows = wanted.choose(rows)
        return in_order(rows, words.get("order") or "step", words.get("direction", "down") == "down")

    def _group(self, file: str, group: int) -> list[Row]:
        return [row for row in self.episodes.of_file(file) if row.entry.group == group]

    def _of_episodes(self) -> dict[str, Any]:
        """What takes a walk over all rows, from the last time if they are the same."""
        if self._counted_version != self.episodes.version:
            self._counted = {"facets": self.episodes.facets(), "breakdown": self._breakdown()}
            self._counted_version = self.episodes.version
        return self._counted

    def _breakdown(self) -> list[dict[str, Any]]:
        """Success by world and difficulty at the last validation, counted as its metrics do."""
        held_out = [row for row in self.episodes.rows if row.kind == "validation" and was_played(row)]
        last = max((row.step for row in held_out), default=0)
        parts: dict[tuple[str, str], list[Row]] = {}
        for row in held_out:
            if row.step == last:
                parts.setdefault((row.entry.env, row.entry.difficulty), []).append(row)
        return [
            {
                "env": env,
                "difficulty": difficulty,
                "step": last,
                **wilson(sum(row.entry.success for row in rows), len(rows)).to_dict(),
                "return": _mean([row.entry.episode_return for row in rows if is_sample(row)]),
                "turns": _mean([row.entry.turns for row in rows if is_sample(row)]),
            }
            for (env, difficulty), rows in sorted(parts.items())
        ]

    def _preset(self) -> dict[str, Any] | None:
        """What the run's first event says it was made from, and what differs from that now: resuming may change it."""
        started = self._started()
        if not isinstance(started.get("changed"), dict):
            return None
        changed: dict[str, list[Any]] = {}
        for event in self._events:
            told = event.get("changed") if event["event"] in ("started", "resumed") else None
            for key, pair in told.items() if isinstance(told, dict) else ():
                if isinstance(pair, list) and len(pair) == 2:
                    changed[key] = [changed.get(key, pair)[0], pair[1]]
        differing = {key: pair for key, pair in changed.items() if pair[0] != pair[1]}
        return {"name": started.get("preset"), "changed": differing}

    def _started(self) -> dict[str, Any]:
        return next((event for event in self._events if event["event"] == "started"), {})

    def _state(self) -> dict[str, Any]:
        return {
            "metrics": [len(self.metrics.steps), self.metrics.steps[-1] if self.metrics.steps else None],
            "events": len(self._events),
            "episodes": self.episodes.version,
            "status": self._status(),
        }

    def _status(self) -> str:
        if self.paths.summary.is_file():
            return "finished"
        if _is_held(self.path / ".lock"):
            return "running"
        if not self._events and not self.metrics.steps and self.episodes.directory == self.path:
            return "episodes"  # that an evaluation kept
        return "stopped" if self._events and self._events[-1]["event"] == "stopped" else "unfinished"


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _as_typed(path: Path) -> str:
    """A path as someone types it who stands where the page was started."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _at(tree: Any, *keys: str) -> Any:
    for key in keys:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _checkpoint_steps(directory: Path) -> list[dict[str, Any]]:
    """Those that are there; a run removes old ones at any moment."""
    found = {entry.name.removeprefix("step_"): _modified_at(entry) for entry in directory.glob("step_*")}
    steps = sorted(step for step, time in found.items() if step.isdecimal() and time)
    return [{"step": int(step), "time": found[step]} for step in steps]


def _modified_at(path: Path) -> float:
    """0 if it is not there, or no longer."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _is_held(lock: Path) -> bool:
    """Whether the process that a run's lock names is alive here. The lock itself is left alone: a run may want it."""
    try:
        os.kill(int(lock.read_text()), 0)
    except PermissionError:  # it is someone else's
        return True
    except (OSError, ValueError):
        return False
    return True
