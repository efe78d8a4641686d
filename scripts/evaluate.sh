#!/usr/bin/env bash
# Translates a data set with a trained run's model, and scores it.
set -euo pipefail

usage() {
    cat <<'HELP'
usage: bash scripts/evaluate.sh [--venv DIR] RUN [OPTION...]

Translates the test set with the averaged model of RUN (a folder that scripts/train.sh made) and prints BLEU with
sacreBLEU's signature, chrF, and beside them the tokenised BLEU of the older literature. What is done already is not
done again.

  --subset NAME      another data set of the data folder: valid
  --comet [MODEL]    COMET too, where it is installed (pip install unbabel-comet)
  --data DATA        the data folder, where it has been moved since
  --cpu              do not use a GPU
  --json             print JSON
  --venv DIR         the virtual environment, made where it is not there (default: .venv in the repository)
  -h, --help         this text
HELP
}

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

read_options "$@"

install_package "$venv" fairseq
exec "$venv/bin/fairseq-mhe" evaluate ${options[@]+"${options[@]}"}
