import pytest

from openmanus_rl.tracking.stats import wilson


def test_an_interval_reads_as_rate_range_and_number():
    assert str(wilson(484, 512)) == "94.5 % [92.2, 96.2] n=512"


def test_no_success_and_only_success_still_leave_room_for_doubt():
    none, all_of_them = wilson(0, 20), wilson(20, 20)
    assert none.low == 0 < none.high < 0.2
    assert 0.8 < all_of_them.low < all_of_them.high == 1


def test_more_episodes_make_the_interval_narrower():
    few, many = wilson(9, 10), wilson(900, 1000)
    assert few.low < many.low < 0.9 < many.high < few.high


def test_no_episodes_say_nothing():
    assert wilson(0, 0).to_dict() == {"rate": 0.0, "low": 0.0, "high": 1.0, "n": 0}


def test_a_difference_counts_only_where_intervals_are_apart():
    assert wilson(240, 256).is_above(wilson(100, 256))
    assert not wilson(130, 256).is_above(wilson(120, 256))


def test_more_successes_than_episodes_are_refused():
    with pytest.raises(ValueError, match="3 successes in 2"):
        wilson(3, 2)
