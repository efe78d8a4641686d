#!/usr/bin/env bash
# Runs the paper's table: rows x kinds of attention x seeds.
set -euo pipefail

usage() {
    cat <<'HELP'
usage: bash scripts/run_table.sh [--venv DIR] --data DATA --out OUT [OPTION...]

Trains, translates and scores every row with every kind of attention and every seed on a prepared data folder, and
prints the table with the paper's numbers beside: OUT/table.md, .tex, .csv, .json, picture.png, samples.md. Stopped at
any moment, the same command goes on from there; what is finished is not done again.

  --rows ROW,...     default: the paper's seven
  --kinds KIND,...   default: mha,mhe_mul; or all
  --seeds N,...      default: 1
  --fraction F       a share of each recipe's updates: a rehearsal, which the table's title says; or --updates N
  --max-tokens N     tokens that a device takes at a time; the batch of an update stays the same
  --batch-tokens N   another batch than the recipe's
  --gpus N           GPUs a model (default: one; several models at a time where there are several GPUs)
  --processes N      N processes on the CPU a model instead
  --slurm            submit the cells to SLURM as an array of jobs, and return
  --finished-only    train nothing: the table of what is finished
  --venv DIR         the virtual environment, made where it is not there (default: .venv in the repository)
  -h, --help         this text; `fairseq-mhe run-table --help` lists all options
HELP
}

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

read_options "$@"

# submitit, for --slurm, comes along: it is small.
install_package "$venv" fairseq,slurm
exec "$venv/bin/fairseq-mhe" run-table ${options[@]+"${options[@]}"}
