"""`python -m openmanus_rl.envs.service --env maze --port 36001`."""

import sys

from openmanus_rl.envs.service.serve import main

sys.exit(main())
