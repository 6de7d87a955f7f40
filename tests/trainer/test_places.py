"""Roles and pools: a config that places a role nowhere, or names what the run has not, is refused before it starts."""

import pytest

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.errors import UserError
from openmanus_rl.trainer.checked_config import load_run_config
from openmanus_rl.trainer.places import needed_roles, pool_of


def config(*overrides: str) -> RunConfig:
    return load_run_config(None, ["trainer.executor=ray", *overrides])


def test_a_run_has_the_roles_that_its_algorithm_needs():
    grpo, ppo = RunConfig(), config("algorithm.estimator=turn_gae", "rollout.group_size=1")
    assert needed_roles(grpo, set()) == ["actor"]
    assert needed_roles(ppo, {"critic"}) == ["actor", "critic", "rollout"]
    with_kl = config("algorithm.kl.where=loss")
    assert needed_roles(with_kl, set()) == ["actor", "reference", "rollout"]


def test_with_adapters_the_reference_needs_no_process():
    assert needed_roles(config("algorithm.kl.where=loss", "model.lora.rank=4"), set()) == ["actor", "rollout"]


def test_a_role_lives_in_the_pool_named_for_it_else_in_the_first():
    placed = config(
        "cluster.pools.main.ranks_per_node=2", "cluster.pools.sampling.nodes=1", "cluster.roles.rollout=sampling"
    )
    assert (pool_of(placed, "actor"), pool_of(placed, "rollout")) == ("main", "sampling")
    assert placed.cluster.pools["main"].ranks == 2


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["cluster.roles.rollout=samplers"], "there is no such pool"),
        (["cluster.roles.critic=main"], "this run has no such role"),
        (["cluster.pools.main.nodes=1", "cluster.pools.idle.nodes=1"], "no role lives in cluster.pools.idle"),
        (["cluster.pools.main.rank=2"], "cluster.pools.main.rank is not a key"),
        (["trainer.workers.critic=critic"], "this run has no critic"),
    ],
)
def test_a_place_that_makes_no_sense_is_refused(overrides, said):
    with pytest.raises(UserError, match=said):
        config(*overrides)


def test_cluster_keys_need_the_executor_that_reads_them():
    with pytest.raises(UserError, match=r"cluster.pools.main.nodes has no effect: trainer.executor=inline"):
        load_run_config(None, ["cluster.pools.main.nodes=2"])


def test_deterministic_mode_refuses_an_engine_that_batches_by_arrival():
    with pytest.raises(UserError, match=r"trainer\.deterministic"):
        load_run_config(None, ["trainer.deterministic=true", "rollout.engine=vllm"])
