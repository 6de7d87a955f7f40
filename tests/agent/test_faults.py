"""Two calls of a hundred fail and a few hang: the run ends, its returns are those of a run without faults."""

import random
import threading
from collections import Counter as Count

from playing import Shaky, request, setting

from openmanus_rl.agent.openmanus import episode_seed
from openmanus_rl.agent.schedule import RolloutLimits
from openmanus_rl.models.load import load_causal_lm
from openmanus_rl.trainer.metrics import episode_metrics

FAR = {"goal": 100, "nap": 3.0}


def faulty_world(failing: float, hanging: float) -> type:
    """A counter whose steps fail or hang by chance, whoever takes them; `met` counts what happened."""

    class Faulty(Shaky):
        dice = random.Random(1)
        lock = threading.Lock()
        met: Count[str] = Count()  # noqa: RUF012 - shared on purpose: it outlives the sessions

        def misbehave(self, action):
            with self.lock:
                luck = self.dice.random()
                fault = "env_failure" if luck < failing else "env_timeout" if luck < failing + hanging else None
                if fault:
                    self.met[fault] += 1
            if fault == "env_failure":
                raise OSError("the disk is full")
            if fault == "env_timeout":
                super().misbehave("hang")

    return Faulty


def played(models, model, world):
    requests = [
        request("up", number, sample=sample, seed=episode_seed(0, 1, f"counter_{number}", sample), temperature=1.3)
        for number in range(8)
        for sample in range(16)
    ]
    limits = RolloutLimits(concurrency=64, episode_timeout=60.0, retries=3, failure_budget=0.5)
    options = {"options": FAR, "agent": {"max_turns": 4}, "rollout": limits, "step_seconds": 1.5, "model": model}
    with setting(models / "obedient", world, **options) as here:
        episodes = here.agent.play(requests)
        assert here.open_sessions() == 0
    return episodes


def test_faults_change_no_return_hang_nobody_and_are_counted_by_cause(models):
    model = load_causal_lm(models / "obedient").double()  # what rounding could change is out of the way
    calm = played(models, model, faulty_world(0.0, 0.0))
    world = faulty_world(0.02, 0.006)
    shaken = played(models, model, world)
    assert world.met["env_failure"] >= 3, "the test needs faults of both kinds"
    assert world.met["env_timeout"] >= 1
    kept = [(one, other) for one, other in zip(shaken, calm, strict=True) if one.stop_reason.is_sample]
    assert len(kept) >= 126, "almost none is given up after three fresh starts"
    assert [one.episode_return for one, _ in kept] == [other.episode_return for _, other in kept]
    assert len({one.episode_return for one, _ in kept}) > 4, "the test needs returns that differ"
    metrics = episode_metrics(shaken)
    for cause, times in world.met.items():
        given_up = round(metrics.get(f"episode/stop/{cause}", 0.0) * len(shaken))
        assert metrics[f"episode/retries/{cause}"] + given_up == times
