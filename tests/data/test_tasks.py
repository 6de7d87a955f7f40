"""Building tasks."""

from openmanus_rl.data.tasks import build_tasks


def test_a_terminal_shows_how_far_building_is_and_a_log_does_not(monkeypatch, capsys):
    build_tasks("maze", "train", 3)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    build_tasks("maze", "train", 3)
    out, err = capsys.readouterr()
    assert out == ""
    assert "maze, train tasks" in err
