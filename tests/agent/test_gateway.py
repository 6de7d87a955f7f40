"""An endpoint that records: what an agent written elsewhere said becomes tokens that train."""

import asyncio
import itertools
import json
import threading
import time
import urllib.request
from functools import partial
from pathlib import Path

import pytest
from live_service import call
from playing import CONTEXT, Shaky, request, setting

from openmanus_rl.agent.episode import StopReason
from openmanus_rl.agent.gateway import Gateway, ProgramAgent, Recording
from openmanus_rl.agent.gateway.server import Line
from openmanus_rl.agent.rewards import turn_rewards
from openmanus_rl.agent.rows import assert_only_sampled_tokens_train, episodes_to_rows
from openmanus_rl.agent.schedule import RolloutLimits
from openmanus_rl.errors import UserError
from openmanus_rl.registry import load_object

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "http_agent.py"
ASKED = [{"role": "system", "content": "up Answer with Thought: and Action:"}, {"role": "user", "content": "go"}]


def talk(here, client, *, temperature=1.0, max_tokens=16):
    """Run `client(chat)` against a gateway that records; the recording. `chat(messages, …)` is (status, body)."""
    gateway = Gateway(here.engine, here.renderer, model="policy", max_context=CONTEXT, max_tokens=max_tokens)
    line = Line(Recording(here.renderer), temperature, 5, "episode", time.monotonic() + 120)

    async def serve():
        async with gateway.serving() as url:
            name = gateway.open(line)

            def chat(messages, episode=name, **more):
                body = {"model": "policy", "messages": messages, **more}
                where = f"{url}/{episode}/v1/chat/completions" if episode else f"{url}/v1/chat/completions"
                answer = call("POST", where, body)
                return answer.status, answer.content

            try:
                await asyncio.to_thread(client, chat)
            finally:
                if name in gateway._lines:
                    gateway.close(name)

    here.agent.run(serve())
    return line.recording


def said(answer):
    status, body = answer
    assert status == 200, body
    return body["choices"][0]["message"]["content"]


def turns_with(chat, messages, observations):
    """A whole conversation, as most agents hold one: the history grows by the answer and what was seen."""
    messages = list(messages)
    for observation in observations:
        messages.append({"role": "assistant", "content": said(chat(messages))})
        messages.append({"role": "user", "content": observation})
    return messages


def test_a_conversation_that_goes_on_is_one_segment_of_recorded_tokens(models):
    with setting(models / "random") as here:
        recording = talk(here, lambda chat: turns_with(chat, ASKED, ["one", "two", "three", "four"]))
        heard = [(prompt, completion.token_ids) for _, prompt, completion in here.engine.heard]
        respelt = [ids for _, ids in heard if here.renderer.answer_ids(here.renderer.decode(ids)) != ids]
    (segment,) = recording.segments
    assert [list(turn.token_ids) for turn in segment.turns] == [ids for _, ids in heard]
    for (prompt, ids), (later, _) in itertools.pairwise(heard):
        assert later[: len(prompt) + len(ids)] == prompt + ids
    assert respelt, "the test needs an answer that would be encoded otherwise"
    assert list(segment.ids) == heard[-1][0] + heard[-1][1]
    assert [turn.observation for turn in segment.turns] == ["one", "two", "three", ""]


def test_the_same_conversation_of_our_own_agent_has_the_same_prompt(models):
    with setting(models / "obedient", agent={"max_turns": 1}) as here:
        (episode,) = here.agent.play([request("up")])
        opening = here.agent.player.template.opening("up", "native: 0 of 3")
        recording = talk(here, lambda chat: chat(opening), temperature=0.0)
    ours, theirs = episode.segments[0], recording.segments[0]
    assert list(theirs.ids) == list(ours.ids[: ours.turns[0].end])
    assert theirs.prompt_length == ours.prompt_length


def test_another_conversation_starts_a_segment_of_its_own(models):
    def client(chat):
        turns_with(chat, ASKED, ["one"])
        chat([{"role": "user", "content": "summarise"}])

    with setting(models / "random") as here:
        recording = talk(here, client)
    assert [len(segment.turns) for segment in recording.segments] == [1, 1]


def test_going_back_starts_a_segment_with_the_tokens_recorded_up_to_there_as_its_prompt(models):
    def client(chat):
        messages = turns_with(chat, ASKED, ["one", "two"])
        chat([*messages[:4][:-1], {"role": "user", "content": "another way"}])

    with setting(models / "random") as here:
        recording = talk(here, client)
    first, second = recording.segments
    shared = first.turns[0].end
    assert list(second.ids[:shared]) == list(first.ids[:shared])
    assert second.prompt_length > shared, "what was sampled before is not trained on twice"
    assert [len(segment.turns) for segment in recording.segments] == [2, 1]


def test_a_changed_answer_does_not_match_and_one_with_blanks_stripped_does(models):
    def client(chat):
        answer = said(chat(ASKED))
        chat([*ASKED, {"role": "assistant", "content": f"  {answer.strip()}\n"}, {"role": "user", "content": "one"}])
        chat([*ASKED, {"role": "assistant", "content": f"not {answer}"}, {"role": "user", "content": "one"}])

    with setting(models / "obedient") as here:
        recording = talk(here, client, temperature=0.0)
    assert [len(segment.turns) for segment in recording.segments] == [2, 1]


def test_calls_at_once_from_the_same_point_never_share_a_segment(models):
    def client(chat):
        messages = turns_with(chat, ASKED, ["one"])

        async def both():
            await asyncio.gather(*(asyncio.to_thread(chat, messages) for _ in range(3)))

        asyncio.run(both())

    with setting(models / "random") as here:
        recording = talk(here, client)
    assert sorted(len(segment.turns) for segment in recording.segments) == [1, 1, 2]
    for segment in recording.segments:
        for turn in segment.turns:
            assert segment.ids[turn.start : turn.end] == turn.token_ids


def test_what_is_recorded_is_sampled_at_the_episodes_temperature_whatever_the_client_asks(models):
    answers = []

    def client(chat):
        answers.extend(said(chat([*ASKED], temperature=9.0, top_p=0.1)) for _ in range(4))

    with setting(models / "obedient") as here:
        talk(here, client, temperature=0.0)
    assert answers == ["Thought: go\nAction: up"] * 4


def test_a_call_outside_an_episode_is_answered_as_asked_and_not_recorded(models):
    with setting(models / "obedient") as here:
        recording = talk(here, lambda chat: said(chat(ASKED, episode=None, temperature=0.0, max_tokens=3)))
        (_, _, completion) = here.engine.heard[-1]
    assert len(completion.token_ids) == 3
    assert recording.segments == []


def test_a_client_that_streams_gets_the_answer_in_events(models):
    with setting(models / "obedient") as here:
        gateway = Gateway(here.engine, here.renderer, model="policy", max_context=CONTEXT, max_tokens=16)

        def client(url):
            body = json.dumps({"messages": ASKED, "stream": True, "temperature": 0}).encode()
            asked = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(asked, timeout=60) as response:
                assert response.headers["Content-Type"].startswith("text/event-stream")
                return [line.removeprefix("data: ") for line in response.read().decode().split("\n\n") if line]

        async def serve():
            async with gateway.serving() as url:
                return await asyncio.to_thread(client, url)

        *chunks, end = here.agent.run(serve())
    assert end == "[DONE]"
    deltas = [json.loads(chunk)["choices"][0] for chunk in chunks]
    assert "".join(delta["delta"].get("content", "") for delta in deltas) == "Thought: go\nAction: up"
    assert deltas[-1]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("asked", "status", "told"),
    [
        ({"messages": []}, 400, "at least one message"),
        ({"messages": ASKED, "n": 2}, 400, "n is not served"),
        ({"messages": ASKED, "tools": [{"type": "function"}]}, 400, "tools is not served"),
        ({"messages": ASKED, "stop": ["x"]}, 400, "stop is not served"),
        ({"messages": [{"role": "user", "content": 3}]}, 400, "must be text"),
        ({"messages": ASKED, "max_tokens": "many"}, 400, "max_tokens must be a number"),
        ({"messages": [{"role": "user", "content": "word " * CONTEXT}]}, 400, "do not fit a context"),
    ],
)
def test_what_is_not_served_is_refused_in_openais_form(models, asked, status, told):
    def client(chat):
        found, body = chat(**asked)
        assert found == status
        assert told in body["error"]["message"]

    with setting(models / "obedient") as here:
        assert talk(here, client).segments == []


def program_agent(here, program, **limits):
    player = here.agent.player
    limits = RolloutLimits(**{"retries": 0, **limits})
    return ProgramAgent(program, {"counter": [here.url]}, player, limits, turn_rewards)


def test_an_agent_of_plain_http_calls_plays_and_its_episodes_become_rows(models):
    solve = load_object(f"{EXAMPLE}:solve", "program")
    with setting(models / "obedient", Shaky) as here:
        agent = program_agent(here, solve)
        episodes = agent.play([request("up", number % 3, sample=number, temperature=1.0) for number in range(6)])
        rows = episodes_to_rows(episodes, here.renderer.pad_token_id)
        heard = sorted(completion.token_ids for _, _, completion in here.engine.heard)
        assert here.open_sessions() == 0
        agent._runner.close()
    assert [episode.stop_reason for episode in episodes] == [StopReason.DONE] * 6
    assert all(episode.success for episode in episodes)
    assert [episode.episode_return for episode in episodes[:3]] == [6.0, 5.0, 3.0], "what the program said, at the end"
    assert [len(episode.segments) for episode in episodes] == [1] * 6
    assert sorted(list(turn.token_ids) for episode in episodes for turn in episode.turns) == heard
    assert assert_only_sampled_tokens_train(rows) == sum(map(len, heard))


def test_a_program_that_fails_makes_a_failed_episode_that_is_played_again(models):
    tries = []

    def fragile(*, base_url, task, env_url):
        tries.append(base_url)
        call("POST", f"{base_url}/chat/completions", {"messages": ASKED})
        if len(tries) == 1:
            raise OSError("the disk is full")
        return 1.0, True

    with setting(models / "obedient") as here:
        agent = program_agent(here, fragile, retries=1)
        (episode,) = agent.play([request("up")])
        agent._runner.close()
    assert (episode.stop_reason, episode.failed_tries) == (StopReason.DONE, [StopReason.ENV_FAILURE])
    assert len(set(tries)) == 2, "each try is an episode of its own"


def test_a_program_that_never_calls_the_model_has_no_episode(models):
    with setting(models / "obedient") as here:
        agent = program_agent(here, lambda **_: (1.0, True))
        (episode,) = agent.play([request("up")])
        agent._runner.close()
    assert episode.stop_reason is StopReason.ENV_FAILURE
    assert "without a single call" in episode.failure


@pytest.mark.parametrize("said", [None, 1.0, ("much", True)])
def test_a_program_that_returns_something_else_is_told_so(models, said):
    with setting(models / "obedient") as here:
        agent = program_agent(here, lambda **_: said)
        with pytest.raises(UserError, match=r"must return \(reward, success\)"):
            agent.play([request("up")])
        agent._runner.close()


def test_a_program_that_hangs_takes_no_place_and_holds_up_no_end(models):
    hanging, done = [], threading.Event()

    def hang(**_):
        hanging.append(threading.current_thread())
        done.wait()

    with setting(models / "obedient") as here:
        agent = program_agent(here, hang, episode_timeout=0.2, retries=2)
        (episode,) = agent.play([request("up")])
        agent._runner.close()
    assert episode.stop_reason is StopReason.DEADLINE
    assert len(hanging) == 3, "a further try does not wait for the thread of the last"
    assert all(thread.daemon for thread in hanging), "the process ends without them"
    done.set()


def test_an_engine_that_fails_is_named_as_the_cause(models):
    def broken(*_):
        raise RuntimeError("out of memory")

    with setting(models / "obedient") as here:
        here.model.register_forward_pre_hook(broken)
        agent = program_agent(here, partial(load_object(f"{EXAMPLE}:solve", "program")))
        (episode,) = agent.play([request("up")])
        agent._runner.close()
    assert episode.stop_reason is StopReason.ENGINE_FAILURE
    assert "out of memory" in episode.failure


def test_an_episode_that_is_over_gets_no_more_answers(models):
    late = []

    def slow(*, base_url, task, env_url):
        time.sleep(1.0)
        late.append(call("POST", f"{base_url}/chat/completions", {"messages": ASKED}).status)
        return 1.0, True

    with setting(models / "obedient") as here:
        agent = program_agent(here, slow, episode_timeout=0.3)
        episodes = agent.play([request("up")])
        agent._runner.close()
    assert episodes[0].stop_reason is StopReason.DEADLINE
    assert here.engine.heard == []
