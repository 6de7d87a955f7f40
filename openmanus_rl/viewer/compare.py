"""Several runs side by side: where their configs differ, and whether their success does by more than noise."""

from collections.abc import Iterator, Sequence
from typing import Any

from openmanus_rl.tracking.stats import Interval, difference
from openmanus_rl.viewer.run import RunView


def compare(runs: Sequence[RunView]) -> dict[str, Any]:
    """The runs' last held-out success, each against the first run that has one; and the keys that differ."""
    told = [{"state": run.state(), **run.brief()} for run in runs]
    configs = [run.config() for run in runs]
    first = next((place for place, run in enumerate(told) if run["success"]), None)
    baseline = None if first is None else told[first]
    for run, config in zip(told, configs, strict=True):
        is_compared = baseline is not None and run["success"] and run is not baseline
        run["difference"] = run["measured_otherwise"] = None
        if is_compared and baseline is not None and first is not None:
            run["difference"] = difference(_interval(run["success"]), _interval(baseline["success"])).to_dict()
            run["measured_otherwise"] = measured_otherwise(run, config, baseline, configs[first])
    return {
        "runs": told,
        "baseline": baseline["name"] if baseline else None,
        "config": differing_values(configs),
        "metrics": sorted({name for run in runs for name in run.metrics.columns}),
    }


def measured_otherwise(
    run: dict[str, Any], config: dict[str, Any], baseline: dict[str, Any], its_config: dict[str, Any]
) -> list[str]:
    """In what the two measurements are not alike, so that their difference says less than it seems to."""
    told = []
    if any(config.get(key) != its_config.get(key) for key in ("env", "envs")):
        told.append("worlds or their options differ")
    if run["success"]["n"] != baseline["success"]["n"]:
        told.append(f"{run['success']['n']} episodes against {baseline['success']['n']}")
    if run["success"]["step"] != baseline["success"]["step"]:
        told.append(f"step {run['success']['step']} against {baseline['success']['step']}")
    return told


def differing_values(configs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Dotted keys whose values are not the same in all configs, with the value of each (None: it has no such key)."""
    flat = [dict(_leaves(config)) for config in configs]
    keys = dict.fromkeys(key for leaves in flat for key in leaves)
    rows = [{"key": key, "values": [leaves.get(key) for leaves in flat]} for key in keys]
    return [row for row in rows if any(value != row["values"][0] for value in row["values"])]


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _interval(success: dict[str, Any]) -> Interval:
    return Interval(**{name: success[name] for name in ("rate", "low", "high", "n")})
