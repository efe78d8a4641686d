#!/usr/bin/env bash
# Installs fairseq-mhe into a virtual environment and measures it next to stock fairseq: the numbers of results/.
set -euo pipefail

usage() {
    cat <<'HELP'
usage: bash scripts/benchmark.sh [--venv DIR] [--out DIR] [--ctranslate2] [OPTION...]

Makes a virtual environment, installs fairseq-mhe with the known-good versions of constraints.txt, and runs
`fairseq-mhe bench` attention, training and generation, one after another. Stopped at any moment, the same command goes
on from there. Nothing else should use the machine meanwhile.

  --venv DIR      the virtual environment (default: .venv in the repository)
  --out DIR       where {attention,training,generation}.{json,md} go (default: runs/benchmark)
  --ctranslate2   also time CTranslate2 (installs it)
  -h, --help      this text

All other options go to the three, among them --row, --attention, --device, --dtype, --threads and --repetitions; lengths,
beams and batches are options of each one: see `fairseq-mhe bench generation --help`.

Needs Python 3.11 or 3.12 ($PYTHON, or python3, python3.12 or python3.11 on the PATH).
HELP
}

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

read_options "$@"
out="$repository/runs/benchmark"
common=()
generation=()
set -- ${options[@]+"${options[@]}"}
while (($#)); do
    case "$1" in
        --out)
            [[ $# -ge 2 && -n "$2" ]] || fail "--out needs a folder"
            out="$2"
            shift
            ;;
        --out=*) out="${1#--out=}" ;;
        --ctranslate2) generation+=("$1") ;;
        *) common+=("$1") ;;
    esac
    shift
done

install_package "$venv" fairseq
if ((${#generation[@]})) && ! "$venv/bin/python" -c 'import ctranslate2' 2>/dev/null; then
    "$venv/bin/python" -m pip install --disable-pip-version-check -c "$repository/constraints.txt" ctranslate2 >&2 ||
        fail "ctranslate2 cannot be installed, see above"
fi
for bench in attention training; do
    "$venv/bin/fairseq-mhe" bench "$bench" --out "$out/$bench" ${common[@]+"${common[@]}"}
done
exec "$venv/bin/fairseq-mhe" bench generation --out "$out/generation" \
    ${common[@]+"${common[@]}"} ${generation[@]+"${generation[@]}"}
