"""All checks of one world, one after another, on a server of its own or on one that runs already."""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from openmanus_rl.envs.access import token_from_environment
from openmanus_rl.envs.base import SPLITS, ActionGrammar, Environment, Split
from openmanus_rl.envs.check.actions import (
    bad_actions_are_told,
    calls_end_in_time,
    grammar_shown_is_parsed,
    odd_actions_do_no_harm,
)
from openmanus_rl.envs.check.memory import memory_stays
from openmanus_rl.envs.check.outcomes import expert_succeeds, nothing_after_the_end, score_in_its_range
from openmanus_rl.envs.check.sameness import identical_resets, isolated_sessions, same_task_in_every_process
from openmanus_rl.envs.check.splits import disjoint_splits
from openmanus_rl.envs.check.subject import CheckFailed, NotChecked, Subject
from openmanus_rl.envs.client import NativeClient, Patience
from openmanus_rl.envs.client.transport import NoAnswer, Transport
from openmanus_rl.envs.install import python_for
from openmanus_rl.envs.launch import launch_servers
from openmanus_rl.envs.registry import ENVIRONMENTS, environment_class, make_environment
from openmanus_rl.errors import UserError

ITEMS = 64
"""Of each split are looked at."""
MOST_SESSIONS = 1000
"""Are played at once, of a world that does not say how many it can."""
CHECK_SECONDS = 600.0
"""No check takes longer: one that does has met a world that hangs."""


@dataclass(frozen=True)
class Check:
    """A promise, and the function that looks whether it is kept."""

    name: str
    function: Callable[[Subject], Awaitable[str]]
    slow: bool = False


CHECKS: tuple[Check, ...] = (
    Check("same task in every process", same_task_in_every_process),
    Check("identical resets in a group", identical_resets),
    Check("sessions are isolated", isolated_sessions),
    Check("nothing after the end", nothing_after_the_end),
    Check("calls end in time", calls_end_in_time),
    Check("grammar shown = grammar parsed", grammar_shown_is_parsed),
    Check("bad actions are told", bad_actions_are_told),
    Check("odd actions do no harm", odd_actions_do_no_harm),
    Check("success rule and score range", score_in_its_range),
    Check("disjoint splits", disjoint_splits),
    Check("expert succeeds", expert_succeeds),
    Check("memory stays", memory_stays, slow=True),
)

FAST_CHECKS: tuple[Check, ...] = tuple(check for check in CHECKS if not check.slow)


@dataclass(frozen=True)
class CheckResult:
    """How one check went."""

    name: str
    status: Literal["passed", "failed", "not checked"]
    detail: str


def check_world(
    name: str, options: Mapping[str, Any] | None = None, *, checks: Sequence[Check] = CHECKS, seconds: float = 10.0
) -> Iterator[CheckResult]:
    """Start a server of the world and check both; results come as they are known."""
    world, options = environment_class(name), options or {}
    with (
        tempfile.TemporaryDirectory() as logs,
        launch_servers(name, options=options, log_dir=Path(logs)) as servers,
    ):
        yield from check_server(
            servers.urls[0], checks=checks, seconds=seconds, name=name, world=world, options=options
        )


def check_server(
    url: str,
    items: Sequence[str] = (),
    *,
    checks: Sequence[Check] = CHECKS,
    seconds: float = 10.0,
    name: str | None = None,
    world: type[Environment] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Iterator[CheckResult]:
    """Check a server that runs already, on these items, by default those of the world that has its name here.

    `name`, `world` and `options` are what it was started with, if that is known: some checks need the class.
    """
    url, options = url.rstrip("/"), options or {}
    with asyncio.Runner() as runner:
        told = runner.run(_described(url, seconds))
        subject = Subject(
            name=name or told["name"],
            url=url,
            client=NativeClient([url], patience=Patience(start_seconds=seconds, step_seconds=seconds)),
            forms=told["forms"],
            instructions=told["instructions"],
            success_rule=told["success_rule"],
            score_range=(told["score_range"][0], told["score_range"][1]),
            items={"train": items} if items else _items(world or _known_here(told["name"]), options),
            world=world,
            options=options,
            grammar=_grammar(name or told["name"], world, options),
            seconds=seconds,
            expert_seconds=max(seconds, told.get("expert_seconds") or 0.0),
            sessions_at_once=told.get("sessions_at_once") or MOST_SESSIONS,
        )
        try:
            for check in checks:
                yield runner.run(_result(check, subject))
        finally:
            runner.run(subject.client.aclose())


async def _described(url: str, seconds: float) -> dict[str, Any]:
    """What the server says of its world."""
    transport = Transport(keep_alive_seconds=1.0, token=token_from_environment())
    try:
        reply = await transport.request("GET", f"{url}/v1/env", None, seconds)
    except NoAnswer as error:
        raise UserError(
            f"{url} does not answer: {error}.", "Is the server up? `openmanus-rl env serve NAME`"
        ) from error
    finally:
        await transport.aclose()
    if reply.status != 200 or not isinstance(reply.content, dict) or "forms" not in reply.content:
        raise UserError(
            f"{url} is no server of ours: {reply.complaint}", "Servers of `openmanus-rl env serve` can be checked."
        )
    return reply.content


def _grammar(name: str, world: type[Environment] | None, options: Mapping[str, Any]) -> ActionGrammar | None:
    """That of a world with these options, which may differ from its class's."""
    if world is None:
        return None
    environment = world(**options) if python_for(world) == sys.executable else make_environment(name, **options)
    try:
        return environment.grammar
    finally:
        environment.close()


def _items(world: type[Environment], options: Mapping[str, Any]) -> Mapping[Split, Sequence[str]]:
    return {split: tuple(islice(world.item_ids(split, **options), ITEMS)) for split in SPLITS}


def _known_here(name: str) -> type[Environment]:
    if name not in ENVIRONMENTS:
        raise UserError(f"no items of {name} are known here.", "Name some: --item ID, as often as you like.")
    return environment_class(name)


async def _result(check: Check, subject: Subject) -> CheckResult:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return CheckResult(check.name, "passed", await check.function(subject))
    except CheckFailed as failure:
        return CheckResult(check.name, "failed", str(failure))
    except NotChecked as reason:
        return CheckResult(check.name, "not checked", str(reason))
    except TimeoutError:
        return CheckResult(check.name, "failed", f"did not end within {CHECK_SECONDS:g} s")
    except Exception as error:  # noqa: BLE001 - whatever a world raises here, it broke a promise
        return CheckResult(check.name, "failed", f"{type(error).__name__}: {error}")
