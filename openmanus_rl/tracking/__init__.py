"""The run directory is the truth: config, versions, metrics, episodes, checkpoints, and what is shown of them."""
