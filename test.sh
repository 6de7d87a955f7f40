#!/usr/bin/env bash
# Everything that must hold before a change is shared: format, lint, types, import rules, tests.
#
#   ./test.sh                       without the slow tests
#   ./test.sh --all                 with them
#   ./test.sh [--all] tests/envs …  anything else goes to pytest
#
# It stops at the first stage that fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# Two at a time, a file's tests on one side. The slow ones measure, so with them it is one after the other.
selection=(-n 2 --dist loadfile -m "not slow")
if [ "${1:-}" = --all ]; then
    selection=()
    shift
fi

# Tests start processes of their own; with all threads in each they slow each other down tenfold.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# Some virtual machines announce AMX and then refuse its instructions: products in bfloat16 would end the process.
export ONEDNN_MAX_CPU_ISA="${ONEDNN_MAX_CPU_ISA:-AVX512_CORE_FP16}"

# They would also compile every module anew, where byte code is not to be kept.
unset PYTHONDONTWRITEBYTECODE

stage() {
    local name=$1 started=$SECONDS
    shift
    printf '── %s\n' "$name"
    if ! "$@"; then
        printf '── %s failed after %d s: %s\n' "$name" $((SECONDS - started)) "$*" >&2
        exit 1
    fi
    printf '── %s: %d s\n' "$name" $((SECONDS - started))
}

bin=.venv/bin
stage set-up scripts/setup.sh dev
stage format "$bin/ruff" format --check .
stage lint "$bin/ruff" check .
stage imports "$bin/lint-imports"
stage types "$bin/mypy"
stage tests "$bin/pytest" ${selection[@]+"${selection[@]}"} "$@"
printf '── all passed in %d s\n' "$SECONDS"
