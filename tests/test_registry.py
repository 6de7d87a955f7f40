"""A user's own code, by module:name."""

import json

import pytest

from openmanus_rl.errors import UserError
from openmanus_rl.registry import load_object


def test_a_file_does_not_take_the_place_of_a_module_of_its_name(tmp_path):
    (tmp_path / "json.py").write_text("def dumps(value): return 'mine'\n")
    assert load_object(f"{tmp_path}/json.py:dumps", "reward")(1) == "mine"
    assert json.dumps(1) == "1"
    import json as imported_again

    assert imported_again is json


@pytest.mark.parametrize(("text", "complaint"), [("def broken(:", "SyntaxError"), ("x = unknown", "NameError")])
def test_what_a_file_does_wrong_is_told_with_its_line(tmp_path, text, complaint):
    file = tmp_path / "mine.py"
    file.write_text(text + "\n")
    with pytest.raises(UserError, match=complaint) as error:
        load_object(f"{file}:x", "reward")
    assert complaint == "SyntaxError" or f"{file}:1" in str(error.value.hint)
