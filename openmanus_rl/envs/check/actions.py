"""What an agent may say: the shown forms are understood, anything else is refused politely, and all of it in time."""

import time

from openmanus_rl.envs.check.subject import CheckFailed, Choose, Subject, answered, gathered, play
from openmanus_rl.envs.client import EnvTimeout, Handle

BAD_ACTIONS = ("", " ", "xyzzy 17", "?!", "{}", "null", "</action>", "'; DROP TABLE x; --", "__import__('os')", "-1")

ODD_ACTIONS = {
    "100,000 letters": "a" * 100_000,
    "100,000 spaces": "x" + " " * 100_000 + "x",
    "20,000 words": "go " * 20_000,
    "nested brackets": "(" * 5_000 + "[" * 5_000,
    "a NUL and controls": "up\x00\x07\x1b[31mdown\x7f",
    "lines": "up\n\n\r\ndown\u2028\u2029",
    "right to left": "\u202eup\u202c שלום",
    "combining marks": "u\u0301" * 2_000,
    "emoji and astral letters": "👩‍👩‍👧 𝕦𝕡 🏳️‍🌈",
    "letters that change length in lower case": "İ" * 500 + "ß" * 500,
    "digits of another script": "get ١ oak log",
    "replacement characters": "\ufffd" * 100,
}


async def grammar_shown_is_parsed(subject: Subject) -> str:
    """The instructions show every form, the grammar parses every form, and what the expert does is one of them.

    That a form is refused where it is said breaks no promise: it may name something that is not there.
    """
    grammar = subject.known_grammar()
    for form in subject.forms:
        if form not in subject.instructions:
            raise CheckFailed(f"{form!r} is a form of the grammar, and the instructions do not show it")
        if grammar.parse(form) is None:
            raise CheckFailed(f"{form!r} is shown, and does not match its own pattern")

    async def expert(item_id: str, turn: int, handle: Handle) -> str:
        return await subject.expert_action(handle) or await subject.script(item_id, turn, handle)

    knows = await subject.knows_an_expert()
    for item_id in subject.item_ids if knows else ():
        played = await play(subject, item_id, expert)
        for turn, result in enumerate(played.results, 1):
            action = played.seen[turn + 2][0]
            if grammar.parse(action) is None or "invalid" in result.info:
                raise CheckFailed(f"{item_id}, turn {turn}: the expert's {action!r} is refused: {dict(result.info)}")
    return f"{len(subject.forms)} forms" + (f", {len(subject.item_ids)} episodes of the expert" if knows else "")


async def bad_actions_are_told(subject: Subject) -> str:
    """What is no action is answered with a reason, and wins nothing."""
    bad = [action for action in BAD_ACTIONS if subject.grammar is None or not subject.grammar.parse(action)]
    for action in bad:
        played = await answered(repr(action), play(subject, subject.item_ids[0], _always(action), turns=1))
        result = played.results[0]
        if "invalid" not in result.info:
            raise CheckFailed(f"{action!r} is no action, and info['invalid'] does not say so")
        if result.success or result.reward > 0:
            raise CheckFailed(f"{action!r} is no action, and pays {result.reward:g}")
    return f"{len(bad)} bad actions"


async def odd_actions_do_no_harm(subject: Subject) -> str:
    """Long and odd Unicode is answered, and the session goes on."""
    for what, action in ODD_ACTIONS.items():
        handle = await subject.start(subject.item_ids[0])
        try:
            result, _ = await answered(what, subject.client.step(handle, action))
            if not result.done:
                await answered(f"an action after {what}", subject.client.step(handle, subject.forms[0]))
        finally:
            await subject.client.close(handle)
    return f"{len(ODD_ACTIONS)} odd actions"


async def calls_end_in_time(subject: Subject) -> str:
    """No start and no step takes longer than the time for one call, whatever the action."""
    slowest = 0.0

    async def timed(item_id: str, action: str | None) -> None:
        nonlocal slowest
        began = time.monotonic()
        choose = subject.script if action is None else _always(action)
        try:
            played = await play(subject, item_id, choose, turns=20)
        except EnvTimeout as error:
            what = "its own actions" if action is None else f"{action[:40]!r}"
            raise CheckFailed(f"{item_id} with {what}: {error}") from error
        slowest = max(slowest, (time.monotonic() - began) / (len(played.results) + 1))

    await gathered([timed(item_id, None) for item_id in subject.item_ids])
    actions = [*subject.forms, *BAD_ACTIONS, *ODD_ACTIONS.values()]
    await gathered([timed(subject.item_ids[0], action) for action in actions])
    return f"at most {subject.seconds:g} s a call; the slowest episode took {1000 * slowest:.1f} ms a call"


def _always(action: str) -> Choose:
    async def choose(*_: object) -> str:
        return action

    return choose
