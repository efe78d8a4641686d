#!/usr/bin/env bash
# Installs fairseq-mhe into a virtual environment and runs its quickstart: from nothing to the table, in one command.
set -euo pipefail

usage() {
    cat <<'HELP'
usage: bash scripts/quickstart.sh [--venv DIR] [OPTION...]

Makes a virtual environment, installs fairseq-mhe with the known-good versions of constraints.txt, and runs
`fairseq-mhe quickstart`: prepares the embedded English-German corpus, trains an MHA and an MHE-Mul model of the same
size, translates, scores, and prints the table. What is done already is not done again; stopped at any moment, the
same command goes on from there.

  --venv DIR   the virtual environment (default: .venv in the repository)
  -h, --help   this text

All other options go to `fairseq-mhe quickstart`, among them:
  --out DIR              where everything goes (default: runs/quickstart)
  --attention KIND,...   kinds of attention to compare, or all (default: mha,mhe_mul)
  --updates N            updates of each training
  --limit N              N pairs of the corpus only, for a trial
  --seed N               random seed (default: 1)
  --cpu                  do not use a GPU

Needs Python 3.11 or 3.12 ($PYTHON, or python3, python3.12 or python3.11 on the PATH).
HELP
}

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

read_options "$@"

install_package "$venv" fairseq
exec "$venv/bin/fairseq-mhe" quickstart ${options[@]+"${options[@]}"}
