"""An agent that knows nothing of this package: it plays with plain HTTP calls and is trained as it is.

openmanus-rl train agent.program=examples/http_agent.py:solve

It asks a model that speaks OpenAI's chat API and acts in a world behind a server. All that training needs of it is
that the model's address can be given, and its reward at the end.
"""

import json
import urllib.error
import urllib.request

MAX_TURNS = 8


def solve(*, base_url, task, env_url):
    """Play one task; the sum of the world's rewards, and whether it was solved."""
    started = send("POST", f"{env_url}/v1/sessions", {"task": {"env": task.env, "item_id": task.item_id}})
    world = f"{env_url}/v1/sessions/{started['session_id']}"
    rules = task.prompt or started["instructions"]
    messages = [
        {"role": "system", "content": f"{rules} Answer with Thought: and Action:"},
        {"role": "user", "content": started["observation"]},
    ]
    try:
        return play(f"{base_url}/chat/completions", world, messages)
    finally:
        send("DELETE", world)


def play(model, world, messages):
    """Answer and act until the world ends the task, or there is no room for more."""
    total, success = 0.0, False
    for turn in range(1, MAX_TURNS + 1):
        try:
            said = send("POST", model, {"model": "policy", "messages": messages})["choices"][0]["message"]["content"]
        except urllib.error.HTTPError as error:
            if error.code == 400:  # the conversation does not fit the model's context any more
                break
            raise
        seen = send("POST", f"{world}/step", {"action": said.rpartition("Action:")[2].strip(), "turn": turn})
        total, success = total + seen["reward"], seen["success"]
        if seen["terminated"] or seen["truncated"]:
            break
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": seen["observation"]}]
    return total, success


def send(method, url, body=None):
    """One call, JSON both ways."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as response:
        answer = response.read()
    return json.loads(answer) if answer else None
