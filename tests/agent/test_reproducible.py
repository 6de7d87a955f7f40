"""The same seed gives the same episodes, whatever runs beside them."""

from contextlib import closing

from live_service import live_service
from playing import CONTEXT, request
from toy_worlds import Counter

from openmanus_rl.agent.openmanus import episode_seed
from openmanus_rl.config.load import load_config
from openmanus_rl.inference.factory import make_engine
from openmanus_rl.models.load import load_tokenizer
from openmanus_rl.rewards import RewardManager
from openmanus_rl.trainer.agents import make_agent


def token_streams(model_dir, url, concurrency):
    """Every token with its log-prob, of 96 sampled episodes by the agent and engine that a run makes."""
    config = load_config(
        None,
        [
            f"env.urls=[{url}]",
            f"model.max_context={CONTEXT}",
            "agent.max_turns=4",
            "agent.max_tokens_per_turn=16",
            "trainer.deterministic=true",
            f"rollout.concurrency={concurrency}",
        ],
    )
    engine = make_engine(config, str(model_dir))
    requests = [
        request("up", number, sample=sample, seed=episode_seed(0, 1, f"counter_{number}", sample), temperature=1.3)
        for number in range(8)
        for sample in range(12)
    ]
    rewards = RewardManager(config.algorithm, config.agent.max_episode_tokens)
    with closing(make_agent(config, engine, load_tokenizer(model_dir), {"maze": [url]}, rewards)) as agent:
        episodes = agent.play(requests)
        agent.run(engine.close())
    return [
        (list(segment.ids), [list(turn.log_probs) for turn in segment.turns])
        for episode in episodes
        for segment in episode.segments
    ]


def test_in_deterministic_mode_one_at_a_time_and_64_at_once_give_identical_token_streams(models):
    with live_service(Counter, {"goal": 100}, spec="counter") as url:
        alone, together = (token_streams(models / "obedient", url, concurrency) for concurrency in (1, 64))
    assert alone == together
    assert len({tuple(ids) for ids, _ in alone}) > 48, "the test needs episodes that differ"
