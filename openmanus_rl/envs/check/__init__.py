"""Whether a world keeps the promises that training relies on: one small function for each of them.

A check is a function of the `Subject`. It returns what it saw, raises `CheckFailed` with the promise that is broken, or
`NotChecked` with why it cannot tell. `run` has the list of them.
"""
