#!/usr/bin/env bash
# Check fairseq-mhe on a GPU in eight minutes: correctness, CUDA graphs, waits, speed beside stock fairseq, training.
#
# The parts, one after another. If one fails, or takes half of the time that is left, the next one begins:
#   1. tests: every kind of attention against its equation; graphs; no wait for the GPU in an update and a decoding step
#   2. training and training-large: size base in bf16, 4,096, 16,384 and 65,536 tokens a batch, with and without graphs,
#      beside stock fairseq in each of its settings; the share of the arithmetic limit; what takes longest, and waits
#   3. generation: the same in fp16, and CTranslate2
#   4. quickstart: trains in fp16, translates, scores
#   5. multi30k, with --data only: the whole recipe of Wu et al. (2021) with mha, mhe_mul and mhe_conv, as far as time goes
#
#   --out DIR      folder of the results; earlier reports become REPORT.earlier (default: runs/gpu)
#   --data DATA    Multi30k, from data-prep/multi30k_en_de.sh, to train on (default: the embedded corpus)
#   --minutes N    time for all, without the installation (default: 8). Exit status 1: a part failed, or had no time
#   --cpu          a dry run in tiny sizes, without a GPU, in three minutes
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
set_up fairseq,convert,test "$@"
set -- "${options[@]}"
out="$repository/runs/gpu" data="" minutes=8 limit=() failed=()
ctranslate2=(--ctranslate2) without=(--without-graphs)
sizes=(--row base --device cuda --threads 1)
training=(--dtype bf16 --batches 5 --first-epoch 60 --repetitions 3) kinds="mha,mhe_mul" tokens="4096,16384" most_tokens=65536
generation=(--attention "mha,mhe_mul" --beams 5 --sentences 100 --batch-sizes 32 --dtype fp16 --repetitions 3)
quickstart=(--precision fp16 --updates 200) translation=(--engine fairseq --precision fp16) recipe=()
while (($#)); do
    case "$1" in
        --out | --data | --minutes)
            [[ -n "${2:-}" ]] || fail "$1 needs a value"
            declare "${1#--}=$2" && shift ;;
        --cpu)
            limit=(--limit 200) quickstart=(--limit 200 --updates 20 --cpu) translation=(--cpu) without=()
            sizes=(--row tiny --device cpu --threads 1 --vocab-size 10000)
            training=(--batches 1 --repetitions 1) kinds=mha tokens=512 most_tokens=1024
            generation=(--attention "mha,mhe_mul" --beams 2 --sentences 3 --batch-sizes 2 --repetitions 1)
            recipe=(--updates 2 --cpu)
            ;;
        *) fail "unknown option $1: --help lists them" ;;
    esac
    shift
done
[[ "$minutes" =~ ^(0|[1-9][0-9]{0,3})$ ]] || fail "--minutes needs a whole number up to 9999"
SECONDS=0 # without the installation
export PYTHONPATH="$repository:$repository/scripts${PYTHONPATH:+:$PYTHONPATH}"

# part NAME SHARE WORD...: runs Python with the words, for at most 1 / SHARE of the time that is left.
part() {
    local seconds=$(((60 * minutes - SECONDS) / $2))
    echo "== $1: ${*:3}" >&2
    ((seconds > 0)) && timeout --signal=INT --kill-after=10 "$seconds" "$python" -P "${@:3}" && return
    failed+=("$1")
    echo "gpu_check.sh: $1 failed, or had no time" >&2
}

# bench NAME WHAT WORD...: runs a benchmark; its report is NAME.md.
bench() {
    part "$1" 2 -m fairseq_mhe_cli bench "$2" "${sizes[@]}" --profile "${without[@]}" "${@:3}" --out "$out/$1"
}

train_on="$data"
if [[ -z "$data" ]]; then
    train_on="$out/corpus"
    part corpus 2 -m fairseq_mhe_cli corpus home_assistant_en_de "${limit[@]}" --out "$train_on"
fi
part tests 2 -m pytest -q "$repository"/tests/{attention/test_devices,models/test_{graphs,decoding_graphs}}.py
# CTranslate2 opens the cuBLAS of CUDA 12; torch for CUDA 13 brings another.
if [[ "${sizes[*]}" == *cuda* ]] && ! "$python" -P -c 'import ctypes, torch; ctypes.CDLL("libcublas.so.12")' 2>/dev/null; then
    echo "gpu_check.sh: CTranslate2 is left out: pip install nvidia-cublas-cu12, and name its folder in LD_LIBRARY_PATH" >&2
    ctranslate2=() failed+=(CTranslate2)
fi
for report in "$out"/{training,training-large,generation}.{json,md}; do # bench would refuse those of other software
    [[ ! -e "$report" ]] || mv --backup=numbered -- "$report" "$report.earlier"
done
training+=(--data "$train_on")
bench training training --attention "$kinds" --max-tokens "$tokens" "${training[@]}"
# One kind: graphs of large batches hold tens of GiB in each process.
bench training-large training --attention mhe_mul --max-tokens "$most_tokens" "${training[@]}"
bench generation generation "${generation[@]}" "${ctranslate2[@]}"
part quickstart 2 -m fairseq_mhe_cli quickstart --attention mhe_mul "${quickstart[@]}" --out "$out/quickstart"
part translate 2 -m fairseq_mhe_cli translate "$out"/quickstart/{tiny-mhe_mul-seed1,data*/raw/test.en} "${translation[@]}" --out "$out/test.de"
if [[ -n "$data" ]]; then
    part multi30k 1 -m fairseq_mhe_cli run-table --rows multi30k --kinds mha,mhe_mul,mhe_conv --data "$data" "${recipe[@]}" --out "$out/multi30k"
fi
((${#failed[@]} == 0)) || { echo "gpu_check.sh: failed, or had no time: ${failed[*]}" >&2 && exit 1; }
