"""The engine of an OpenAI-compatible endpoint: text both ways, retries, a budget, and no way to train on it."""

import asyncio
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

sys.path.insert(0, str(Path(__file__).parent.parent / "envs"))

from live_service import live_app

from openmanus_rl.config.schema import EndpointConfig
from openmanus_rl.errors import UserError
from openmanus_rl.inference import endpoint as module
from openmanus_rl.inference.base import FinishReason, SamplingParams
from openmanus_rl.inference.endpoint import EndpointEngine, EndpointFailure
from openmanus_rl.models.plain_chat import PlainChat

CHAT = PlainChat()
PROMPT = CHAT.prompt_ids([{"role": "system", "content": "Play."}, {"role": "user", "content": "Go ⟶ §"}])
SAMPLING = SamplingParams(max_tokens=7, temperature=0.5)
GOOD = {
    "choices": [{"message": {"role": "assistant", "content": "Action: up"}, "finish_reason": "stop"}],
    "usage": {"total_tokens": 30},
}


@contextmanager
def endpoint(*answers):
    """A server that gives these (status, body, headers) in turn, the last for ever; and the bodies it was asked."""
    asked = []

    async def chat(request):
        asked.append(await request.json())
        status, body, headers = answers[min(len(asked), len(answers)) - 1]
        if status == 0:
            await asyncio.sleep(30)
        return JSONResponse(body, status, headers)

    with live_app(Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])) as url:
        yield f"{url}/v1", asked


def ask(url, prompt=PROMPT, deadline=None, calls=1, **config):
    """Completions of an engine on the endpoint, one after the other; the last."""

    async def asked():
        engine = EndpointEngine(EndpointConfig(url=url, model="large", **config))
        try:
            for _ in range(calls):
                completion = await engine.generate(prompt, SAMPLING, seed=2**40 + 3, session="s", deadline=deadline)
            return completion
        finally:
            await engine.close()

    return asyncio.run(asked())


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)


def test_a_conversation_goes_out_as_messages_and_comes_back_as_text_without_log_probs():
    with endpoint((200, GOOD, None)) as (url, asked):
        completion = ask(url)
    assert asked == [
        {
            "model": "large",
            "messages": [{"role": "system", "content": "Play."}, {"role": "user", "content": "Go ⟶ §"}],
            "max_tokens": 7,
            "temperature": 0.5,
            "top_p": 1.0,
            "seed": 3,
        }
    ]
    assert CHAT.decode(completion.token_ids) == "Action: up"
    assert completion.token_ids[-1] in CHAT.stop_token_ids
    assert (completion.log_probs, completion.versions) == ([], []), "it told none, so there are none"
    assert completion.finish_reason is FinishReason.STOP


def test_an_answer_that_was_cut_has_no_end():
    cut = {**GOOD, "choices": [{**GOOD["choices"][0], "finish_reason": "length"}]}
    with endpoint((200, cut, None)) as (url, _):
        completion = ask(url)
    assert completion.finish_reason is FinishReason.LENGTH
    assert completion.token_ids == CHAT.encode_content("Action: up")


def test_it_is_asked_again_when_the_endpoint_is_busy_or_broken():
    with endpoint((503, {}, None), (429, {}, {"Retry-After": "1"}), (200, GOOD, None)) as (url, asked):
        began = time.monotonic()
        assert CHAT.decode(ask(url, tries=3).token_ids) == "Action: up"
    assert len(asked) == 3
    assert time.monotonic() - began >= 1, "it said how long to wait"


def test_after_its_tries_the_failure_says_what_happened():
    with endpoint((500, {"error": "no more memory"}, None)) as (url, asked):
        with pytest.raises(EndpointFailure, match=r"status 500: .*no more memory.* \(3 tries\)"):
            ask(url, tries=3)
        assert len(asked) == 3


def test_no_answer_in_time_is_a_failure_and_not_a_wait_for_ever():
    with endpoint((0, {}, None)) as (url, _), pytest.raises(EndpointFailure, match=r"no answer within 0\.2 s"):
        ask(url, timeout=0.2, tries=2)


def test_a_deadline_ends_the_tries():
    with endpoint((0, {}, None)) as (url, _):
        completion = ask(url, timeout=20.0, deadline=time.monotonic() + 0.3)
    assert completion.finish_reason is FinishReason.DEADLINE


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_name_is_the_users_to_mend_and_not_asked_again(status):
    with endpoint((status, {"error": {"message": "no such model"}}, None)) as (url, asked):
        with pytest.raises(UserError, match="no such model") as told:
            ask(url)
        assert len(asked) == 1
    assert "OPENAI_API_KEY" in told.value.hint


def test_a_conversation_too_long_for_the_endpoint_is_a_full_context():
    full = {"error": {"message": "This model's maximum context length is 8 tokens", "code": "context_length_exceeded"}}
    with endpoint((400, full, None)) as (url, _):
        assert ask(url).finish_reason is FinishReason.CONTEXT


def test_beyond_the_budget_nothing_more_is_asked():
    with endpoint((200, GOOD, None)) as (url, asked):
        assert ask(url, calls=4, token_budget=60).finish_reason is FinishReason.ABORTED
        assert len(asked) == 2


def test_a_budget_that_cannot_be_kept_is_refused():
    with (
        endpoint((200, {"choices": GOOD["choices"]}, None)) as (url, _),
        pytest.raises(UserError, match="cannot be kept"),
    ):
        ask(url, token_budget=60)


def test_the_key_goes_into_the_header(monkeypatch):
    headers = []

    async def chat(request):
        headers.append(request.headers.get("Authorization"))
        return JSONResponse(GOOD)

    with live_app(Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])) as url:
        monkeypatch.setenv("MY_KEY", "abc")
        ask(f"{url}/v1", api_key_variable="MY_KEY")
        ask(f"{url}/v1", api_key_variable="NOT_SET_ANYWHERE")
    assert headers == ["Bearer abc", None]


@pytest.mark.parametrize("how", ["abort", "release"])
def test_an_aborted_call_ends_as_such(how):
    async def aborted(url):
        engine = EndpointEngine(EndpointConfig(url=url, model="large"))
        call = asyncio.ensure_future(engine.generate(PROMPT, SAMPLING, seed=1, session="s"))
        await asyncio.sleep(0.2)
        getattr(engine, how)("s")
        completion = await call
        await engine.close()
        return completion.finish_reason

    with endpoint((0, {}, None)) as (url, _):
        assert asyncio.run(aborted(url)) is FinishReason.ABORTED


def test_it_cannot_train():
    engine = EndpointEngine(EndpointConfig(url="http://127.0.0.1:1/v1", model="large"))
    for work in (engine.score([1, 2]), engine.update_weights(None, 1)):
        with pytest.raises(UserError, match="cannot train"):
            asyncio.run(work)


def test_a_conversation_is_read_back_as_it_was():
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": "a\n𝄞"}]
    ids = CHAT.prompt_ids(messages) + CHAT.answer_ids("ok") + CHAT.append_ids(True, "next")
    assert CHAT.messages(ids) == [
        *messages,
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "next"},
    ]
