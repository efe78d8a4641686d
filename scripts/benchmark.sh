#!/usr/bin/env bash
# Measures fairseq-mhe next to stock fairseq, the numbers of results/: `fairseq-mhe bench` attention, training and
# generation, one after another, into --out DIR (default: runs/benchmark). --ctranslate2 also times CTranslate2. Stopped
# at any moment, the same command goes on from there. Nothing else should use the machine meanwhile. Options that all
# three have: --row, --attention, --device, --dtype, --threads, --repetitions, ...
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

out="$repository/runs/benchmark"
extras=fairseq
common=()
generation=()
while (($#)); do
    case "$1" in
        --out)
            [[ $# -ge 2 && -n "$2" ]] || fail "--out needs a folder"
            out="$2"
            shift
            ;;
        --out=*)
            out="${1#--out=}"
            [[ -n "$out" ]] || fail "--out needs a folder"
            ;;
        --ctranslate2)
            generation=(--ctranslate2)
            extras=fairseq,convert
            ;;
        *) common+=("$1") ;;
    esac
    shift
done
set_up "$extras" ${common[@]+"${common[@]}"}

if [[ " ${options[*]-} " == *" --help "* || " ${options[*]-} " == *" -h "* ]]; then
    run -m fairseq_mhe.cli bench
fi
for bench in attention training; do
    (run -m fairseq_mhe.cli bench "$bench" --out "$out/$bench")
done
run -m fairseq_mhe.cli bench generation --out "$out/generation" ${generation[@]+"${generation[@]}"}
