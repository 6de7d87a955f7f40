"""How episodes end: once and for good, with a success the rule tells of and a return within the range."""

from functools import partial
from itertools import islice

from openmanus_rl.envs.base import Environment, EpisodeOver, Task
from openmanus_rl.envs.check.subject import MAX_TURNS, CheckFailed, NotChecked, Subject, aside, gathered, play
from openmanus_rl.envs.client import EnvFailure, Handle
from openmanus_rl.envs.items import pick, seeded
from openmanus_rl.envs.registry import make_environment

EXPERT_TASKS = 64
PONDERED_TASKS = 16
"""So few where the expert thinks for long."""
EXPERT_SUCCESS = 0.95


async def nothing_after_the_end(subject: Subject) -> str:
    """A step after the end is refused, by the server and by the world itself, and the end stays."""
    handle = await subject.start(subject.item_ids[0])
    try:
        for turn in range(MAX_TURNS):
            if handle.done:
                break
            await subject.client.step(handle, await subject.script(handle.task.item_id, turn, handle))
        if not handle.done:
            raise NotChecked(f"{handle.task.item_id} did not end within {MAX_TURNS} turns")
        for _ in range(2):
            try:
                await subject.client.step(handle, subject.forms[0])
            except EnvFailure as error:
                if "409" not in str(error):
                    raise CheckFailed(f"a step after the end is a failure, not a refusal: {error}") from error
            else:
                raise CheckFailed("the server takes a step after the end")
    finally:
        await subject.client.close(handle)
    if subject.world is not None:
        await aside(partial(_check_the_world_itself, subject, handle.task))
    return "refused twice"


def _check_the_world_itself(subject: Subject, task: Task) -> None:
    environment = make_environment(subject.name, **subject.options)
    try:
        _refused_by_the_world(environment, task)
    finally:
        environment.close()


def _refused_by_the_world(environment: Environment, task: Task) -> None:
    environment.reset(task)
    chance = seeded(f"check {task.item_id}")
    form = environment.grammar.forms
    for _ in range(MAX_TURNS):
        if environment.step(environment.expert_action() or pick(form, chance.random()).shown).done:
            break
    for _ in range(2):
        try:
            environment.step(form[0].shown)
        except EpisodeOver:
            continue
        raise CheckFailed("the world itself takes a step after the end; it must raise EpisodeOver")


async def score_in_its_range(subject: Subject) -> str:
    """Returns lie in the stated range, success comes with the end, and the rule is stated."""
    low, high = subject.score_range
    if not subject.success_rule.strip() or not low < high:
        raise CheckFailed(f"success rule {subject.success_rule!r}, scores from {low:g} to {high:g}")

    async def any_form(item_id: str, turn: int, _: Handle) -> str:
        return pick(subject.forms, seeded(f"check form {item_id} {turn}").random())

    async def nonsense(*_: object) -> str:
        return "xyzzy"

    policies = (subject.script, any_form, nonsense)
    episodes = [play(subject, item_id, policy) for item_id in subject.item_ids for policy in policies]
    totals = []
    for played in await gathered(episodes):
        for turn, result in enumerate(played.results, 1):
            if result.success and not result.done:
                raise CheckFailed(f"{played.item_id}, turn {turn}: a success before the end")
        if not low - 1e-6 <= played.total <= high + 1e-6:
            raise CheckFailed(f"{played.item_id}: a return of {played.total:g} is outside {low:g} … {high:g}")
        totals.append(played.total)
    return f"{len(totals)} episodes from {min(totals):g} to {max(totals):g}, stated {low:g} … {high:g}"


async def expert_succeeds(subject: Subject) -> str:
    """The world's own expert solves its tasks."""
    tasks = PONDERED_TASKS if subject.expert_seconds > subject.seconds else EXPERT_TASKS
    items = list(islice(subject.items.get("test") or subject.item_ids, tasks))

    async def expert(item_id: str, _: int, handle: Handle) -> str:
        action = await subject.expert_action(handle)
        if action is None:
            raise NotChecked(f"the world knows no expert action in {item_id}")
        return action

    played = await gathered([play(subject, item_id, expert) for item_id in items])
    successes = sum(episode.success for episode in played)
    if successes < EXPERT_SUCCESS * len(played):
        raise CheckFailed(f"{successes} of {len(played)} tasks, and {EXPERT_SUCCESS:.0%} are expected")
    return f"{successes} of {len(played)} tasks"
