"""What an answer is compared with comes out of the data as it went in."""

from openmanus_rl.data.tasks import read_tasks, write_tasks
from openmanus_rl.envs.base import Task


def test_a_task_may_have_several_ground_truths(tmp_path):
    tasks = [
        Task("maze", "maze_0", ground_truth=["four", "4"]),
        Task("maze", "maze_1", ground_truth="five"),
        Task("maze", "maze_2"),
    ]
    write_tasks(tmp_path / "train.parquet", tasks)
    assert [task.ground_truth for task in read_tasks(tmp_path / "train.parquet")] == [["four", "4"], ["five"], None]


def test_a_single_ground_truth_stays_a_text(tmp_path):
    write_tasks(tmp_path / "train.parquet", [Task("maze", "maze_0", ground_truth="four")])
    assert read_tasks(tmp_path / "train.parquet")[0].ground_truth == "four"
