"""The text that the tiny tokenizer of these tests is trained on."""

OBSERVATION = "up:open down:seen left:wall right:open goal x+3 y-1"
ANSWER = "Thought: go up\nAction: up"
CORPUS = [
    "Reach the goal. Actions: up, down, left, right.",
    *(
        f"up:{a} down:{b} left:{a} right:{b} goal x{x:+d} y{y:+d}"
        for a in ("open", "seen", "wall")
        for b in ("open", "seen", "wall")
        for x in range(-3, 4)
        for y in range(-3, 4)
    ),
    *(f"Thought: go {way}\nAction: {way}" for way in ("up", "down", "left", "right") for _ in range(20)),
]
