"""Worlds whose actions are calls of tools: what a tool is, the grammar of a call, and one file for each world."""
