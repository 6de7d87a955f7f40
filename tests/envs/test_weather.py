"""Weather: a tool world in one file. What all tool worlds share is tested with the to-do list."""

from datetime import date
from itertools import combinations

import pytest
from live_service import call, live_service

from openmanus_rl.envs.base import SPLITS, Task
from openmanus_rl.envs.baselines import baseline_success
from openmanus_rl.envs.registry import environment_class
from openmanus_rl.envs.tools.calls import Call
from openmanus_rl.envs.tools.tool import ToolError, call_tool
from openmanus_rl.envs.tools.weather import Weather, WeatherService, weather_on, weather_tasks

OSLO = {"latitude": 59.91, "longitude": 10.75}


@pytest.fixture
def service():
    return WeatherService({"today": "2024-02-10", "city": "Oslo"})


def test_the_weather_of_a_day_is_always_the_same_and_fits_the_season():
    day = date(2024, 2, 1)
    assert weather_on("temperature", 59.91, 10.75, day) == weather_on("temperature", 59.91, 10.75, day)
    winter = [weather_on("temperature", 59.91, 10.75, date(2024, 1, d)) for d in range(1, 29)]
    summer = [weather_on("temperature", 59.91, 10.75, date(2024, 7, d)) for d in range(1, 29)]
    south = [weather_on("temperature", -33.87, 151.21, date(2024, 7, d)) for d in range(1, 29)]
    assert sum(winter) / 28 < sum(summer) / 28 - 10
    assert sum(south) / 28 < sum(weather_on("temperature", -33.87, 151.21, date(2024, 1, d)) for d in range(1, 29)) / 28


def test_history_ends_yesterday_and_a_forecast_begins_today(service):
    told = call_tool(service, "get_historical_temp", {**OSLO, "start_date": "2024-02-08", "end_date": "2024-02-09"})
    assert list(told) == ["2024-02-08", "2024-02-09"]
    for name, first, last in (
        ("get_historical_temp", "2024-02-09", "2024-02-10"),
        ("get_rain_forecast", "2024-02-09", "2024-02-12"),
        ("get_rain_forecast", "2024-02-12", "2024-02-11"),
        ("get_rain_forecast", "2024-02-12", "2025-02-11"),
        ("get_rain_forecast", "soon", "later"),
    ):
        with pytest.raises(ToolError):
            call_tool(service, name, {**OSLO, "start_date": first, "end_date": last})


def test_what_is_nowhere_is_refused(service):
    with pytest.raises(ToolError, match="no city"):
        call_tool(service, "get_latitude_longitude", {"name": "Atlantis"})
    with pytest.raises(ToolError, match="latitude"):
        call_tool(service, "get_current_temp", {"latitude": 91, "longitude": 0})
    with pytest.raises(ToolError, match="latitude"):
        call_tool(service, "get_current_temp", {"latitude": "nan", "longitude": 0})


def test_a_distance_is_that_of_the_great_circle(service):
    there = {"latitude1": 0, "longitude1": 0, "latitude2": 0, "longitude2": 90}
    assert call_tool(service, "get_distance", there) == pytest.approx(6371 * 3.14159265 / 2, abs=0.1)


def test_the_expert_answers_every_question():
    for split in SPLITS:
        assert baseline_success("weather", "expert", split, 1000).rate == 1.0


def test_splits_share_no_task_and_leave_none_out():
    items = {split: set(Weather.item_ids(split)) for split in SPLITS}
    assert not any(items[one] & items[other] for one, other in combinations(SPLITS, 2))
    assert set().union(*items.values()) == {f"weather_{n}" for n in range(len(weather_tasks()))}


def test_a_wrong_answer_pays_nothing():
    world = Weather()
    world.reset(Task("weather", "weather_0"))
    assert not world.step(Call("finish", {"answer": -300}).write()).success


def test_an_agentgym_client_asks_for_the_weather():
    with live_service(environment_class("weather")) as url:
        index = call("POST", f"{url}/create", {"id": 0}).content
        assert call("POST", f"{url}/reset", {"env_idx": index, "id": 1}).content.startswith("Goal: ")
        said = "Thought: where am I?\nAction: get_user_current_location with Action Input: {}"
        step = call("POST", f"{url}/step", {"env_idx": index, "action": said}).content
        assert step == {"observation": step["observation"], "reward": 0.0, "done": False}
