"""A person can be the agent."""


def test_a_maze_is_played_from_lines_of_text(cli):
    """The expert is asked for every step, as a player who is lost would."""
    actions: list[str] = []
    for _ in range(12):
        shown = cli(
            "play", "maze", "--options", '{"size": 2}', stdin="".join(f"{action}\n" for action in [*actions, "?"])
        )
        assert shown.code == 0, shown.err
        if "success, return" in shown.out:
            break
        actions.append(shown.out.rpartition("the expert says: ")[2].split()[0])
    assert "Actions: up, down, left, right" in shown.out
    assert "@" in shown.out
    assert shown.out.endswith("success, return +1.00\n")
    assert shown.out.count("reward ") == len(actions)


def test_what_the_picture_shows_is_not_told_again(cli):
    shown = cli("play", "sqlgym", stdin="")
    assert shown.out.count("Question:") == 1


def test_the_end_of_the_input_ends_the_game(cli):
    shown = cli("play", "maze", stdin="fly\n")
    assert shown.code == 0, shown.err
    assert "reward -0.05; not one of up, down, left, right\n" in shown.out
    assert shown.out.endswith("stopped, return -0.05\n")


def test_a_task_that_the_world_does_not_have_is_named(cli):
    result = cli("play", "wordle", "--task", "999999999")
    assert result.code == 2
    assert "wordle has no training task 999999999" in result.err


def test_the_search_for_a_far_task_ends(cli):
    result = cli("play", "maze", "--task", "999999999")
    assert result.code == 2
    assert "was not reached in 10 s" in result.err
    assert "Choose a smaller --task" in result.err


def test_a_person_sits_in_for_the_agent_and_sees_its_prompt_and_what_is_read(cli):
    answers = "Thought: hm\n\nThought: a wall?\nAction: up\n\n?\n"
    shown = cli("play", "maze", "--template", "react", stdin=answers)
    assert shown.code == 0, shown.err
    assert shown.out.startswith("[system]\n")
    assert "Answer with Thought: and Action:\n\n[user]\n" in shown.out
    assert "=> not readable: the answer has no line that starts with Action:" in shown.out
    assert "[user]\nInvalid answer: the answer has no line that starts with Action:.\n" in shown.out
    assert "=> read as action: up\n=> reward -0.10" in shown.out
    assert "the expert would write:\nThought: go\nAction: " in shown.out


def test_a_person_sees_the_very_prompt_of_a_model(cli, grpo_run):
    shown = cli("play", "maze", "--template", "react", "--model", str(grpo_run / "initial_model"), stdin="")
    assert shown.code == 0, shown.err
    assert "<|" in shown.out.splitlines()[0], "with the tokens that its chat template puts around a message"
    assert " tokens\n" in shown.out


def test_a_model_without_a_template_is_a_mistake(cli):
    result = cli("play", "maze", "--model", "somewhere")
    assert result.code == 2
    assert "Add --template react" in result.err
