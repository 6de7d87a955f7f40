#!/usr/bin/env bash
# What train_grpo.sh and train_ppo.sh share: the help, the set-up, then the training itself.
#
#   scripts/train.sh grpo|ppo [flags] [key=value …]
#
# The help needs no Python. The last line is an exec, so that a signal (Ctrl-C) reaches the trainer and nothing else.
set -euo pipefail

algorithm=${1:-}
case $algorithm in
    grpo) credit="GRPO: an episode is compared with its siblings on the same task" ;;
    ppo) credit="PPO: a critic says what each turn was worth (GAE)" ;;
    *)
        printf "train: error: the algorithm is 'grpo' or 'ppo', not '%s'.\n" "$algorithm" >&2
        exit 2
        ;;
esac
shift

print_help() {
    cat <<HELP
Usage: ./train_$algorithm.sh [flags] [key=value ...]

Trains an agent in an interactive environment and shows its success before and after.
$credit.
The first call makes .venv and installs the pinned packages (Python 3.11 or newer is all it needs).

Flags:
  --env_name NAME          the environment: maze (default), wordle, textcraft, any other of the README, or your own
                           as module:Class
  --num_servers N          how many environment servers to start
  --base_port PORT         port of the first server; a taken port is an error if you asked for it
  --data_dir DIR           where the task files (parquet) are or will be made; default data (NAME/train.parquet in it)
  --model PATH_OR_ID       a Hugging Face directory or hub id; default: a tiny model, built and warm-started here
  --exp_name_suffix TEXT   added to the name of the run directory
  --help                   this text

Anything else is an override of the configuration, key=value; ./train_$algorithm.sh --print-config lists them all.
Relative paths are relative to the root of the repository, wherever you call this from.

Examples:
  ./train_$algorithm.sh
  ./train_$algorithm.sh --env_name wordle --num_servers 2
  ./train_$algorithm.sh --exp_name_suffix seed7 trainer.seed=7
  ./train_$algorithm.sh trainer.resume=never
HELP
}

for argument in "$@"; do
    case $argument in
        -h | --help)
            print_help
            exit 0
            ;;
    esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh train
exec .venv/bin/openmanus-rl train --algorithm "$algorithm" "$@"
