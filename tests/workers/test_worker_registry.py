"""Roles to classes: the package's, and a user's own."""

import pytest

from openmanus_rl.errors import UserError
from openmanus_rl.workers.actor import ActorWorker, ReferenceWorker
from openmanus_rl.workers.critic import CriticWorker
from openmanus_rl.workers.registry import find_worker, worker


def test_the_roles_of_the_package_have_their_classes():
    found = [find_worker(role) for role in ("actor", "critic", "reference")]
    assert found == [ActorWorker, CriticWorker, ReferenceWorker]


def test_a_class_of_ones_own_is_found_in_its_file_which_is_run_once(tmp_path):
    path = tmp_path / "my_worker.py"
    path.write_text(
        "from openmanus_rl.workers.actor import ActorWorker\n"
        "from openmanus_rl.workers.registry import worker\n\n\n"
        "@worker('judge of this test')\nclass Judge(ActorWorker):\n    pass\n\n\nNUMBER = 3\n"
    )
    judge = find_worker(f"{path}:Judge")
    assert issubclass(judge, ActorWorker)
    assert find_worker(f"{path}:Judge") is judge
    assert find_worker("judge of this test") is judge


def test_a_role_has_one_default():
    with pytest.raises(ValueError, match="twice"):
        worker("actor")(CriticWorker)


@pytest.mark.parametrize("name", ["aktor", "openmanus_rl.workers.actor:Aktor", "openmanus_rl.workers.actor:lora"])
def test_what_is_no_worker_class_is_refused_with_a_reason(name):
    with pytest.raises(UserError):
        find_worker(name)
