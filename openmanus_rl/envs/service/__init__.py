"""The environment service: worlds behind HTTP, in a process of their own. Start it with `python -m` on this package."""
