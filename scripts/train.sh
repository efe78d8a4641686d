#!/usr/bin/env bash
# Trains one cell of the paper's table: a row with a kind of attention.
set -euo pipefail

usage() {
    cat <<'HELP'
usage: bash scripts/train.sh [--venv DIR] ROW ATTENTION --data DATA --out RUNS [OPTION...]

Trains ROW (base, 16x32, 4x128, 4L, 8L, 12H, big; iwslt, small, tiny) with ATTENTION (mha, mhe_mul, ...) on a prepared
data folder, by the row's recipe, into RUNS/ROW-ATTENTION-seedN. Stopped at any moment, the same command goes on from
there.

  --seed N           random seed (default: 1)
  --fraction F       a share of the recipe's updates, a rehearsal; or --updates N
  --max-tokens N     tokens that a device takes at a time; the batch of an update stays the same
  --gpus N           GPUs for the model (default: one where there is one, else the CPU)
  --processes N      N processes on the CPU instead
  --tensorboard      logs for TensorBoard in the run folder
  --evaluate         translate and score the test set afterwards
  --venv DIR         the virtual environment, made where it is not there (default: .venv in the repository)
  -h, --help         this text; `fairseq-mhe train --help` lists all options
HELP
}

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

read_options "$@"

install_package "$venv" fairseq
exec "$venv/bin/fairseq-mhe" train ${options[@]+"${options[@]}"}
