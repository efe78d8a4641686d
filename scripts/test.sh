#!/usr/bin/env bash
# Run ruff, mypy, checks of the shell and of CI's workflow, and the tests. All options go to pytest; with any option only the tests run.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
set_up fairseq,test "$@"
cd "$repository"
PATH="$(cd "$(dirname "$(command -v "$python")")" && pwd):$PATH"
export PATH CUDA_VISIBLE_DEVICES="" # gpu_check.sh runs the tests that use a GPU
((${#options[@]} == 0)) || run -m pytest
"$python" -m ruff check .
"$python" -m ruff format --check .
"$python" -m mypy
"$python" -m check_jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
shellcheck scripts/*.sh data-prep/*.sh .ci/*
# One thread a test process, because the processes share the cores. nproc, which obeys OMP_NUM_THREADS, runs before.
OMP_NUM_THREADS=1 run -m pytest --numprocesses "$(nproc)" --dist worksteal --durations 10
