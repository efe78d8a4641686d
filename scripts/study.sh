#!/usr/bin/env bash
# Installs fairseq-mhe into a virtual environment and runs one of its studies.
set -euo pipefail

usage() {
    cat <<'HELP'
usage: bash scripts/study.sh collaborative-curve|uptrain|compare-engines|gap-study [--venv DIR] [OPTION...]

Makes a virtual environment, installs fairseq-mhe with the known-good versions of constraints.txt, and runs
`fairseq-mhe STUDY`. Each writes JSON, Markdown and a picture into its --out, and goes on from where it was when it is
stopped. The first three work on finished runs (of scripts/quickstart.sh, say), the last trains on a data folder:

  collaborative-curve --run RUN          BLEU against the width of collaborative attention, and MHA's
  uptrain --runs DIR                     smaller kinds from scratch and from a trained MHA, over seeds
  compare-engines --mha RUN --mhe RUN    stock fairseq, fairseq with MHE, CTranslate2: speed, memory, size, BLEU
  gap-study --data DATA --out OUT        what moves MHE's BLEU towards MHA's beyond the noise of seeds

  --venv DIR   the virtual environment (default: .venv in the repository)
  -h, --help   this text

All other options go to the study: see `fairseq-mhe STUDY --help`.

Needs Python 3.11 or 3.12 ($PYTHON, or python3, python3.12 or python3.11 on the PATH).
HELP
}

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

read_options "$@"
case "${options[0]-}" in
    collaborative-curve | uptrain | compare-engines | gap-study) ;;
    *) fail "name a study first: collaborative-curve, uptrain, compare-engines or gap-study (--help says more)" ;;
esac

install_package "$venv" fairseq,convert
exec "$venv/bin/fairseq-mhe" "${options[@]}"
