#!/usr/bin/env bash
# Makes .venv at the root of the repository and installs the pinned packages into it.
#
#   scripts/setup.sh train    what training needs
#   scripts/setup.sh vllm     the same, and vLLM for CPUs as a rollout engine
#   scripts/setup.sh dev      all of it, and what ./test.sh needs
#
# A stamp in .venv says what was installed last, so a call with nothing to do returns at once. It is written after
# the last step and removed before the first: a failed or interrupted installation is never taken for a whole one.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
stamp=.venv/.setup-stamp
log=.cache/setup.log

fail() {
    printf 'setup: error: %s\n' "$1" >&2
    exit 1
}

mode=${1:-}
case $mode in
    train) extras=train ;;
    vllm) extras=train,vllm ;;
    dev) extras=train,vllm,dev ;;
    *) fail "the mode is 'train', 'vllm' or 'dev', not '$mode'. Usage: scripts/setup.sh train|vllm|dev" ;;
esac

# The place is part of it: scripts inside a virtualenv name the absolute path of its Python.
wanted="$(cat constraints.txt pyproject.toml | cksum) $root"

is_up_to_date() {
    [ -x .venv/bin/python ] && [ -f "$stamp" ] || return 1
    local installed
    installed=$(cat "$stamp")
    # Each mode holds those before it.
    case "$mode ${installed#"$wanted "}" in
        "train train" | "train vllm" | "train dev" | "vllm vllm" | "vllm dev" | "dev dev") ;;
        *) return 1 ;;
    esac
}

is_recent_python() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# The version the pins were made with comes first; a name on the PATH may be a shim that does not run.
find_python() {
    local candidate
    for candidate in python3.11 python3.12 python3.13 python3 python; do
        if is_recent_python "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    fail "Python 3.11 or newer is needed; found: $(python3 --version 2>/dev/null || echo none).
    Install it (Debian, Ubuntu: apt install python3.11 python3.11-venv; macOS: brew install python@3.11) and try again."
}

# Shows how long the current step takes and what it is doing: one moving line on a terminal, else a line in 20 s.
# It ends with the script, however that ends, and its sleep holds no pipe open.
show_progress() {
    local title=$1 started=$SECONDS seconds
    while sleep 1 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        seconds=$((SECONDS - started))
        if [ -t 2 ]; then
            printf '\r\033[K  %s … %d s  %.60s' "$title" "$seconds" "$(tail -n 1 "$log")" >&2
        elif [ $((seconds % 20)) -eq 0 ]; then
            printf '  %s … %d s\n' "$title" "$seconds" >&2
        fi
    done
}

step() {
    local title=$1 started=$SECONDS
    shift
    show_progress "$title" &
    ticker=$!
    if ! "$@" >>"$log" 2>&1; then
        stop_ticker
        fail "$title failed after $((SECONDS - started)) s: $(last_error)
    The whole log: $log"
    fi
    stop_ticker
    printf '  %s: %d s\n' "$title" $((SECONDS - started)) >&2
}

stop_ticker() {
    if [ -n "${ticker:-}" ]; then
        kill "$ticker" 2>/dev/null || true
        wait "$ticker" 2>/dev/null || true
        ticker=
        [ ! -t 2 ] || printf '\r\033[K' >&2
    fi
}

last_error() {
    grep -i 'error' "$log" | tail -n 1 || tail -n 1 "$log"
}

make_virtualenv() {
    local python=$1
    "$python" -m venv --clear .venv || {
        echo "Error: $python cannot make a virtualenv (Debian, Ubuntu: apt install python3-venv)"
        return 1
    }
}

install_chromium() {
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium; } ||
        echo "chromium was not installed; the tests of the page will be skipped"
}

compile_packages() {
    # Not the hundreds of architectures of which a run imports one.
    local seldom='/tests?/|/transformers/models/|/vllm/model_executor/models/'
    .venv/bin/python -m compileall -q -j 0 -x "$seldom" .venv/lib || echo "some files are not for this version of Python"
}

if is_up_to_date; then
    exit 0
fi

trap stop_ticker EXIT
trap 'printf "\nsetup: interrupted; the next call starts the installation again.\n" >&2; exit 130' INT TERM

mkdir -p .cache
: >"$log"
rm -f "$stamp"
printf 'Setting up .venv (%s; log: %s)\n' "$mode" "$log" >&2
if ! is_recent_python .venv/bin/python || ! .venv/bin/python -m pip --version >>"$log" 2>&1; then
    python=$(find_python)
    step "making .venv with $("$python" --version)" make_virtualenv "$python"
fi
# Byte code is made at the end, on all cores; pip would make it on one.
pip=".venv/bin/python -m pip install --disable-pip-version-check --no-input --progress-bar off --no-compile -c constraints.txt"
# torch first and by its exact version: it brings setuptools, with which the package is then built without a download.
step "installing $(grep '^torch==' constraints.txt)" $pip torch
step "installing the other packages" $pip --no-build-isolation -e ".[$extras]"
if [ "$mode" != train ]; then
    # vLLM asks for these; their builds for CPUs do not load beside this torch, and text models need none of them.
    step "removing packages for pictures and sound" .venv/bin/python -m pip uninstall -y torchvision torchaudio torchcodec
fi
if [ "$mode" = dev ] && [ "$EUID" = 0 ] && command -v apt-get >/dev/null && ! command -v chromium >/dev/null; then
    # The page is tested in a real browser. Where it cannot be installed, those tests say so and are skipped.
    step "installing the chromium browser" install_chromium
fi
step "compiling byte code" compile_packages
printf '%s %s\n' "$wanted" "$mode" >"$stamp"
printf 'Set-up done in %d s.\n' "$SECONDS" >&2
