"""Weather: questions about temperature, rain, snow, places and distances, through a weather service's tools.

The weather is made up: a climate by latitude and season, and chance by place and day, the same on every machine.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from functools import lru_cache
from math import asin, cos, pi, radians, sin, sqrt
from typing import Any, ClassVar

from openmanus_rl.envs.base import stable_hash
from openmanus_rl.envs.items import pick, seeded, shuffled
from openmanus_rl.envs.tools.calls import Call
from openmanus_rl.envs.tools.tool import Answer, ToolError, tool
from openmanus_rl.envs.tools.world import ToolService, ToolTask, ToolWorld

ROUNDS = 60
"""How often every kind of question is asked, each time of other places and days."""

LONGEST_PERIOD = 31
"""Days that one call tells of."""

PLACES: dict[str, tuple[float, float, int]] = {
    "Oslo": (59.91, 10.75, 23),
    "Lisbon": (38.72, -9.14, 45),
    "Nairobi": (-1.29, 36.82, 1795),
    "Quito": (-0.18, -78.47, 2850),
    "Hanoi": (21.03, 105.85, 16),
    "Montreal": (45.5, -73.57, 36),
    "Sydney": (-33.87, 151.21, 39),
    "Cairo": (30.04, 31.24, 23),
    "Reykjavik": (64.15, -21.94, 15),
    "Lima": (-12.05, -77.04, 161),
    "Seoul": (37.57, 126.98, 38),
    "Denver": (39.74, -104.99, 1609),
}
"""Latitude, longitude and elevation in metres."""


class WeatherService(ToolService):
    """What the weather was, is and will be; today's date and where the user is."""

    @tool("today's date, as YYYY-MM-DD")
    def get_user_current_date(self) -> str:
        today: str = self.state["today"]
        return today

    @tool("the city the user is in")
    def get_user_current_location(self) -> str:
        city: str = self.state["city"]
        return city

    @tool("a city's latitude and longitude")
    def get_latitude_longitude(self, name: str) -> dict[str, Any]:
        latitude, longitude, _ = self._place(name)
        return {"name": name, "latitude": latitude, "longitude": longitude}

    @tool("the elevation of a place in metres")
    def get_elevation(self, latitude: float, longitude: float) -> dict[str, int]:
        known = {(there, across): height for there, across, height in PLACES.values()}
        if (latitude, longitude) not in known:
            raise ToolError("the elevation is known of cities only")
        return {"elevation": known[latitude, longitude]}

    @tool("the distance between two places in kilometres")
    def get_distance(self, latitude1: float, longitude1: float, latitude2: float, longitude2: float) -> float:
        return _distance((latitude1, longitude1), (latitude2, longitude2))

    @tool("the mean temperature of past days in °C")
    def get_historical_temp(
        self, latitude: float, longitude: float, start_date: str, end_date: str
    ) -> dict[str, float]:
        return self._days("temperature", latitude, longitude, start_date, end_date, past=True)

    @tool("the rain of past days in mm")
    def get_historical_rain(
        self, latitude: float, longitude: float, start_date: str, end_date: str
    ) -> dict[str, float]:
        return self._days("rain", latitude, longitude, start_date, end_date, past=True)

    @tool("the snow of past days in cm")
    def get_historical_snow(
        self, latitude: float, longitude: float, start_date: str, end_date: str
    ) -> dict[str, float]:
        return self._days("snow", latitude, longitude, start_date, end_date, past=True)

    @tool("the temperature to come, from today on, in °C")
    def get_temp_forecast(self, latitude: float, longitude: float, start_date: str, end_date: str) -> dict[str, float]:
        return self._days("temperature", latitude, longitude, start_date, end_date, past=False)

    @tool("the rain to come, from today on, in mm")
    def get_rain_forecast(self, latitude: float, longitude: float, start_date: str, end_date: str) -> dict[str, float]:
        return self._days("rain", latitude, longitude, start_date, end_date, past=False)

    @tool("the snow to come, from today on, in cm")
    def get_snow_forecast(self, latitude: float, longitude: float, start_date: str, end_date: str) -> dict[str, float]:
        return self._days("snow", latitude, longitude, start_date, end_date, past=False)

    @tool("today's temperature in °C")
    def get_current_temp(self, latitude: float, longitude: float) -> float:
        return weather_on("temperature", latitude, longitude, self._today())

    @tool("today's rain in mm")
    def get_current_rain(self, latitude: float, longitude: float) -> float:
        return weather_on("rain", latitude, longitude, self._today())

    @tool("today's snow in cm")
    def get_current_snow(self, latitude: float, longitude: float) -> float:
        return weather_on("snow", latitude, longitude, self._today())

    def possible_calls(self) -> list[Call]:
        places = [Call("get_latitude_longitude", {"name": name}) for name in PLACES]
        today = [
            Call(name, {"latitude": latitude, "longitude": longitude})
            for name in ("get_current_temp", "get_current_rain", "get_current_snow", "get_elevation")
            for latitude, longitude, _ in PLACES.values()
        ]
        answers = [Call("finish", {"answer": answer}) for answer in ("yes", "no", 0, 1, 10, 20)]
        return [*super().possible_calls(), *places, *today, *answers]

    def _today(self) -> date:
        return date.fromisoformat(self.state["today"])

    def _place(self, name: str) -> tuple[float, float, int]:
        if name not in PLACES:
            raise ToolError(f"there is no city {name[:50]!r}; known are {', '.join(PLACES)}")
        return PLACES[name]

    def _days(
        self, what: str, latitude: float, longitude: float, start_date: str, end_date: str, past: bool
    ) -> dict[str, float]:
        try:
            first, last = date.fromisoformat(start_date), date.fromisoformat(end_date)
        except ValueError as error:
            raise ToolError("a date is written as YYYY-MM-DD") from error
        if first > last or (last - first).days >= LONGEST_PERIOD:
            raise ToolError(f"a period has 1 to {LONGEST_PERIOD} days, the first before the last")
        if (last >= self._today()) if past else (first < self._today()):
            raise ToolError("history ends yesterday, and a forecast begins today")
        days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
        return {day.isoformat(): weather_on(what, latitude, longitude, day) for day in days}


def weather_on(what: str, latitude: float, longitude: float, day: date) -> float:
    """Temperature in °C, rain in mm or snow in cm."""
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise ToolError("latitude is from -90 to 90, longitude from -180 to 180")
    chance = seeded(f"weather {stable_hash(f'{latitude:.2f} {longitude:.2f} {day}')}")
    summer = -cos(2 * pi * (day.timetuple().tm_yday - 15) / 365) * (1 if latitude >= 0 else -1)
    temperature = round(28 - 0.4 * abs(latitude) + 0.22 * abs(latitude) * summer + 8 * chance.random() - 4, 1)
    wet = chance.random()
    rain = round(max(0.0, wet - 0.6) * 40, 1)
    return {
        "temperature": temperature,
        "rain": rain if temperature > 0 else 0.0,
        "snow": round(rain / 2, 1) if temperature <= 0 else 0.0,
    }[what]


class Weather(ToolWorld):
    """Answer a question about the weather, about places and about distances, then `finish` with the answer.

    The rules are those of every tool world. Option: `max_steps`.
    """

    name: ClassVar[str] = "weather"
    service: ClassVar[type[ToolService]] = WeatherService

    @classmethod
    def tasks(cls) -> Sequence[ToolTask]:
        return weather_tasks()


def _questions(today: date, chance: Callable[[], float]) -> Iterator[tuple[str, list[Call], Answer]]:
    """The words, the calls that find it out, and the answer."""
    one, other, third = (name for name, _ in zip(shuffled(list(PLACES), seeded(str(chance()))), range(3), strict=False))
    at = {name: {"latitude": PLACES[name][0], "longitude": PLACES[name][1]} for name in (one, other, third)}
    find = {name: Call("get_latitude_longitude", {"name": name}) for name in at}
    dated = Call("get_user_current_date", {})
    count = 3 + int(chance() * 5)
    past = [today - timedelta(days=n) for n in range(count, 0, -1)]
    to_come = [today + timedelta(days=n) for n in range(1, count + 1)]
    words = {"temperature": "temp", "rain": "rain", "snow": "snow"}

    def values(what: str, name: str, days: list[date]) -> list[float]:
        return [weather_on(what, at[name]["latitude"], at[name]["longitude"], day) for day in days]

    def period(what: str, name: str, days: list[date], kind: str) -> Call:
        tool_name = f"get_historical_{words[what]}" if kind == "past" else f"get_{words[what]}_forecast"
        return Call(tool_name, {**at[name], "start_date": str(days[0]), "end_date": str(days[-1])})

    for what, unit in (("temperature", "°C"), ("rain", "mm")):
        yield (
            f"What is today's {what} in {one}, in {unit}?",
            [find[one], Call(f"get_current_{words[what]}", at[one])],
            values(what, one, [today])[0],
        )
    yield f"How high is {one}, in metres?", [find[one], Call("get_elevation", at[one])], PLACES[one][2]
    ends = [at[one]["latitude"], at[one]["longitude"], at[other]["latitude"], at[other]["longitude"]]
    names = ("latitude1", "longitude1", "latitude2", "longitude2")
    yield (
        f"How far is it from {one} to {other}, in kilometres?",
        [find[one], find[other], Call("get_distance", dict(zip(names, ends, strict=True)))],
        _distance((ends[0], ends[1]), (ends[2], ends[3])),
    )
    highest = max(values("temperature", one, past))
    yield (
        f"What was the highest temperature in {one} in the last {count} days, today not counted?",
        [dated, find[one], period("temperature", one, past, "past")],
        highest,
    )
    wet = sum(value > 0 for value in values("rain", one, past))
    yield (
        f"On how many of the last {count} days, today not counted, did it rain in {one}?",
        [dated, find[one], period("rain", one, past, "past")],
        wet,
    )
    yield (
        f"How much rain will fall in {one} in the next {count} days, today not counted, in mm?",
        [dated, find[one], period("rain", one, to_come, "to come")],
        round(sum(values("rain", one, to_come)), 1),
    )
    warmer = values("temperature", one, [today])[0] > values("temperature", other, [today])[0]
    compared = [call for name in (one, other) for call in (find[name], Call("get_current_temp", at[name]))]
    yield f"Is it warmer in {one} than in {other} today? Answer yes or no.", compared, "yes" if warmer else "no"
    cold = min(at, key=lambda name: min(values("temperature", name, to_come)))
    asked = [call for name in at for call in (find[name], period("temperature", name, to_come, "to come"))]
    yield (
        f"Which of {one}, {other} and {third} will have the coldest day in the next {count} days, today not counted?",
        [dated, *asked],
        cold,
    )


def _distance(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Along the great circle of a sphere with the earth's mean radius, in kilometres."""
    (latitude1, longitude1), (latitude2, longitude2) = (tuple(map(radians, place)) for place in (one, other))
    half = sin((latitude2 - latitude1) / 2) ** 2
    half += cos(latitude1) * cos(latitude2) * sin((longitude2 - longitude1) / 2) ** 2
    return round(2 * 6371 * asin(sqrt(min(1.0, half))), 1)


@lru_cache(maxsize=1)
def weather_tasks() -> tuple[ToolTask, ...]:
    """Every kind of question in every round; what was asked before on the same day is not asked again."""
    found: dict[str, ToolTask] = {}
    for number in range(ROUNDS):
        chance = seeded(f"weather round {number}")
        today = date(2024, 1, 1) + timedelta(days=int(chance.random() * 700))
        state = {"today": today.isoformat(), "city": pick(list(PLACES), chance.random())}
        for goal, calls, answer in _questions(today, chance.random):
            task = ToolTask(goal, state, (*calls, Call("finish", {"answer": answer})), is_question=True)
            found.setdefault(task.content, task)
    return tuple(found.values())
