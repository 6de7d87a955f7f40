#!/usr/bin/env bash
# Trains an agent with PPO, from a fresh clone to a learning curve. ./train_ppo.sh --help says more.
exec "$(dirname "${BASH_SOURCE[0]}")/scripts/train.sh" ppo "$@"
