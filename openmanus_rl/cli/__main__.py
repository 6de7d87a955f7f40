"""`python -m openmanus_rl.cli`: the command without its script."""

from openmanus_rl.cli.main import main

main()
