"""Cassettes: the traffic between players and an environment server as a file, and a server that plays it back."""

from openmanus_rl.envs.cassette.exchange import Exchange, read_cassette
from openmanus_rl.envs.cassette.record import Recorder, forwarding_app
from openmanus_rl.envs.cassette.replay import ReplayServer

__all__ = ["Exchange", "Recorder", "ReplayServer", "forwarding_app", "read_cassette"]
