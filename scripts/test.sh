#!/usr/bin/env bash
# Installs fairseq-mhe into a virtual environment and checks everything: style, types, shell scripts, tests.
set -euo pipefail

usage() {
    cat <<'HELP'
usage: bash scripts/test.sh [--venv DIR] [PYTEST-OPTION...]

Makes a virtual environment, installs fairseq-mhe with the known-good versions of constraints.txt, and runs ruff, mypy,
shellcheck and the tests. All other options go to pytest; with any of them only the tests run.

  --venv DIR   the virtual environment (default: .venv in the repository)
  -h, --help   this text

Needs Python 3.11 or 3.12 ($PYTHON, or python3, python3.12 or python3.11 on the PATH).
HELP
}

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

read_options "$@"
install_package "$venv" fairseq,test

cd "$repository"
export PATH="$venv/bin:$PATH"
if ((${#options[@]})); then
    exec pytest "${options[@]}"
fi
echo "ruff" >&2
ruff check .
ruff format --check .
echo "mypy" >&2
mypy
echo "shellcheck" >&2
mapfile -d '' -t scripts < <(find scripts data-prep .ci -type f \( -name '*.sh' -o -path '.ci/*' \) -print0)
shellcheck --external-sources "${scripts[@]}"
echo "pytest" >&2
# One thread to a test process: more would fight over the cores. (nproc is asked before: it obeys OMP_NUM_THREADS.)
cores="$(nproc)"
export OMP_NUM_THREADS=1
exec pytest --numprocesses "$cores" --dist worksteal
