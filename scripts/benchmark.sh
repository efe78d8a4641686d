#!/usr/bin/env bash
# Measures fairseq-mhe next to stock fairseq: `fairseq-mhe bench` attention, training and generation, one after another,
# into --out DIR (default: runs/benchmark). --ctranslate2 also times CTranslate2; all other options go to all three.
# Stopped at any moment, the same command goes on from there. Nothing else should use the machine meanwhile.
set -euo pipefail
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
set_up fairseq,convert "$@"
set -- "${options[@]}"
out="$repository/runs/benchmark"
generation=() options=()
while (($#)); do
    case "$1" in
        --out) out="${2:-}" && shift ;;
        --out=*) out="${1#--out=}" ;;
        --ctranslate2) generation=("$1") ;;
        -h | --help) run -m fairseq_mhe.cli bench --help ;;
        *) options+=("$1") ;;
    esac
    shift
done
[[ -n "$out" ]] || fail "--out needs a folder"
for bench in attention training; do
    (run -m fairseq_mhe.cli bench "$bench" --out "$out/$bench")
done
run -m fairseq_mhe.cli bench generation --out "$out/generation" "${generation[@]}"
