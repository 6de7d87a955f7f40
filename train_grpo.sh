#!/usr/bin/env bash
# Trains an agent with GRPO, from a fresh clone to a learning curve. ./train_grpo.sh --help says more.
exec "$(dirname "${BASH_SOURCE[0]}")/scripts/train.sh" grpo "$@"
