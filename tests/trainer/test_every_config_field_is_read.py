"""Every key has an effect: a field of the config that no part of the program reads fails here."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

import pytest
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

sys.path.insert(0, str(Path(__file__).parent.parent / "envs"))

from live_service import live_app

from openmanus_rl.config.base import Config
from openmanus_rl.config.effect import USED_BY
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.inference.vllm_start import engine_arguments, variables
from openmanus_rl.trainer.dpo import run_dpo
from openmanus_rl.trainer.evolve import run_evolve
from openmanus_rl.trainer.run import train
from openmanus_rl.trainer.sft_run import DEMONSTRATIONS, run_sft
from openmanus_rl.trainer.standalone import evaluate_endpoint, evaluate_model

CHECKS = ("openmanus_rl.config.load", "openmanus_rl.config.effect", "openmanus_rl.trainer.checked_config")
"""Where fields are only looked at to complain about them."""


def sections(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[type[BaseModel], str]]:
    yield model, prefix
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from sections(field.annotation, f"{prefix}{name}.")


PREFIXES = dict(sections(RunConfig))
ALL_KEYS = {
    f"{prefix}{name}"
    for section, prefix in PREFIXES.items()
    for name, field in section.model_fields.items()
    if field.annotation not in PREFIXES
}


@contextmanager
def recorded_reads() -> Iterator[set[str]]:
    """The keys that code of this package reads in the block, other than to check them."""
    read: set[str] = set()

    def getattribute(self, name):
        if type(self) in PREFIXES and name in type(self).model_fields:
            reader = sys._getframe(1).f_globals.get("__name__", "")
            if reader.startswith("openmanus_rl.") and reader not in CHECKS:
                read.add(f"{PREFIXES[type(self)]}{name}")  # sections too; they are no keys
        return BaseModel.__getattribute__(self, name)

    Config.__getattribute__ = getattribute
    try:
        yield read
    finally:
        del Config.__getattribute__


def read_as_vllm_starts(config: RunConfig) -> None:
    """What vLLM is started with; that it samples is in tests/inference."""
    variables(config)
    for on_cpu in (True, False):
        engine_arguments("a model", config, on_cpu)


async def answer_up(_: Request) -> JSONResponse:
    """What an endpoint says that knows one word."""
    said = {"message": {"role": "assistant", "content": "Action: up"}, "finish_reason": "stop"}
    return JSONResponse({"choices": [said], "usage": {"total_tokens": 1}})


@pytest.fixture(scope="module")
def reads(shared_place, tmp_path_factory):
    """The keys read by each verb, in runs that between them use every part."""
    from tiny_runs import TinyPlace

    here = tmp_path_factory.mktemp("reads")
    place = TinyPlace(shared_place, here / "runs")
    short = ["trainer.steps=1", "data.validation_tasks=4"]
    with_notes = ["agent.context.kind=summary", "agent.context.turns=2"]
    kl_in_reward = place.config(*short, *with_notes, "algorithm.kl.where=reward", "algorithm.kl.target=0.1")
    kl_in_loss = place.config(*short, "algorithm.kl.where=loss", "actor.proximal=recompute", preset=place.ppo)
    read = {}
    adapters = ["model.lora.rank=2", "model.lora.target_modules=[q_proj]"]
    with_adapters = place.config(*short, *adapters, "algorithm.kl.where=loss", "trainer.deterministic=true")
    on_ray = place.config(*short, "trainer.executor=ray", "cluster.roles.rollout=main")
    collapse = ["guard.action=rollback", "guard.lr_factor=0.001", "guard.least_history=1", "rollout.group_size=8"]
    collapsing = place.config("trainer.steps=2", "data.validation_tasks=4", "actor.lr=0.2", *collapse)
    with recorded_reads() as read["train"]:
        train(collapsing)
        run = train(kl_in_reward)
        train(kl_in_loss)
        train(with_adapters)
        train(on_ray)
        train(place.config(*short, "critic.trunk=actor", preset=place.ppo))
        read_as_vllm_starts(with_adapters)
    with live_app(Starlette(routes=[Route("/v1/chat/completions", answer_up, methods=["POST"])])) as url:
        words = ["rollout.engine=endpoint", f"rollout.endpoint.url={url}/v1", "rollout.endpoint.model=any"]
        at_endpoint = place.config(*short, *words)
        with recorded_reads() as read["eval"]:
            evaluate_model(kl_in_reward, str(run), "validation", None, None)
            read_as_vllm_starts(kl_in_reward)
            evaluate_endpoint(at_endpoint, "validation", None, None, None)
    tuned = place.config(*short, *adapters, "warm_start.enabled=true", "warm_start.validation_share=0.2")
    with recorded_reads() as read["sft"]:
        run_sft(tuned, here / "sft")
    conversations = f"warm_start.data={here / 'sft' / DEMONSTRATIONS}"
    given = place.config(*short, *adapters, "warm_start.enabled=true", conversations)
    with recorded_reads() as read["sft --data"]:
        run_sft(given, here / "sft-data")
    with recorded_reads() as read["evolve"]:
        run_evolve(place.config(*short, "evolve.rounds=1", "evolve.tasks=8"), here / "evolve")
    with recorded_reads() as read["dpo"]:
        run_dpo(place.config(*short, "dpo.tasks=16"), here / "dpo")
    return read


def test_every_field_of_the_config_is_read(reads):
    # A model in the cache is not built again, so what builds it is seen where sft builds one.
    unread = ALL_KEYS.difference(*reads.values())
    assert not unread, f"these keys have no effect; wire them or remove them: {sorted(unread)}"


@pytest.mark.parametrize("verb", ["eval", "sft", "sft --data"])
def test_the_keys_a_verb_takes_are_those_it_reads(reads, verb):
    taken = {key for key in ALL_KEYS if any(fnmatch(key, pattern) for pattern in USED_BY[verb])}
    # sft reads warm_start.enabled too, but always sets it; whether a run has adapters is not for eval to say.
    # With warm_start.data given, sft is "sft --data".
    aside = {"warm_start.enabled", "model.lora.rank", "warm_start.data"}
    assert (reads[verb] & ALL_KEYS) - aside == taken - aside


def test_a_field_that_is_read_nowhere_would_be_noticed():
    with recorded_reads() as read:
        assert RunConfig().trainer.steps  # read here, but not by the package
    assert read == set()
