#!/usr/bin/env bash
# Installs fairseq-mhe into a virtual environment and measures its preparation of text beside the classic pipeline.
set -euo pipefail

usage() {
    cat <<'HELP'
usage: bash scripts/benchmark_prepare.sh [--venv DIR] [OPTION...]

Makes a virtual environment, installs fairseq-mhe with the known-good versions of constraints.txt, makes a long parallel
text from the embedded corpus, and prepares it in our way and as fairseq's prepare-wmt14en2de.sh does: Moses' perl
scripts (of the package mosestokenizer, which is installed, or of a clone of Moses), subword-nmt, fairseq-preprocess.
Stopped at any moment, the same command goes on with the run it was at. Nothing else should use the machine meanwhile.

  --venv DIR        the virtual environment (default: .venv in the repository)
  --pairs N         pairs of text (default: 1000000)
  --merges N        BPE merges (default: 32000)
  --workers N       processes (default: all cores)
  --moses CLONE     a clone of mosesdecoder, for its perl scripts
  --scratch FOLDER  where the texts go meanwhile (default: /tmp)
  --out NAME        NAME.json and NAME.md are written (default: runs/benchmark/prepare)
  -h, --help        this text

Needs Python 3.11 or 3.12 ($PYTHON, or python3, python3.12 or python3.11 on the PATH) and perl.
HELP
}

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

read_options "$@"
install_package "$venv" fairseq
if [[ " ${options[*]-} " != *" --moses"* ]] &&
    ! "$venv/bin/python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("mosestokenizer"))'; then
    # Without what it depends on: only the perl scripts in it are called.
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-deps -c "$repository/constraints.txt" \
        mosestokenizer >&2 || fail "mosestokenizer cannot be installed, see above"
fi
exec "$venv/bin/python" -m fairseq_mhe.prepare.benchmark ${options[@]+"${options[@]}"}
