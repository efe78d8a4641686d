#!/usr/bin/env bash
# Check fairseq-mhe on a GPU in eight minutes: kinds of attention, CUDA graphs, speed beside stock fairseq, a quickstart.
#
#   --out DIR      folder of the results; earlier reports become REPORT.earlier (default: runs/gpu)
#   --data DATA    data folder whose pairs are trained on (default: the embedded corpus)
#   --minutes N    time for all; what does not fit is left out, exit status 1 (default: 8)
#   --cpu          a dry run in tiny sizes, without a GPU
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
set_up fairseq,convert,test "$@"
set -- "${options[@]}"
options=() out="$repository/runs/gpu" data="" minutes=8 status=0 limit=()
ctranslate2=(--ctranslate2) without=(--without-graphs)
sizes=(--row base --device cuda --threads 1)
training=(--dtype bf16 --batches 5 --first-epoch 60 --repetitions 3) kinds="mha,mhe_mul" tokens="4096,16384" most_tokens=65536
generation=(--attention "mha,mhe_mul" --beams 5 --sentences 100 --batch-sizes 32 --dtype fp16 --repetitions 3)
quickstart=(--precision fp16 --updates 200) translation=(--engine fairseq --precision fp16)
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
            ;;
        *) fail "unknown option $1: --help lists them" ;;
    esac
    shift
done
[[ "$minutes" =~ ^(0|[1-9][0-9]{0,3})$ ]] || fail "--minutes needs a whole number up to 9999"
SECONDS=0 # without the installation
export PYTHONPATH="$repository:$repository/scripts${PYTHONPATH:+:$PYTHONPATH}"

# part WORD...: runs Python with these words as long as time is left.
part() {
    local left=$((60 * minutes - SECONDS))
    echo "== $*" >&2
    ((left > 0)) && timeout --signal=INT "$left" "$python" -P "$@" && return
    echo "gpu_check.sh: failed, or no time was left" >&2
    status=1
}

if [[ -z "$data" ]]; then
    data="$out/corpus"
    part -m fairseq_mhe_cli corpus home_assistant_en_de "${limit[@]}" --out "$data"
fi
part -m pytest -q "$repository"/tests/{attention/test_devices,models/test_graphs,models/test_decoding_graphs}.py
# CTranslate2 opens the cuBLAS of CUDA 12; torch for CUDA 13 brings another.
if [[ "${sizes[*]}" == *cuda* ]] && ! "$python" -P -c 'import ctypes, torch; ctypes.CDLL("libcublas.so.12")' 2>/dev/null; then
    echo "gpu_check.sh: CTranslate2 is left out: pip install nvidia-cublas-cu12, and name its folder in LD_LIBRARY_PATH" >&2
    ctranslate2=() status=1
fi
for report in "$out"/{training,training-large,generation}.{json,md}; do # bench would refuse those of other software
    [[ ! -e "$report" ]] || mv --backup=numbered -- "$report" "$report.earlier"
done
# Stock fairseq runs in each of its settings. The profile names what takes longest, and where the host waits for the GPU.
training+=("${without[@]}" --profile --data "$data")
part -m fairseq_mhe_cli bench training "${sizes[@]}" --attention "$kinds" --max-tokens "$tokens" "${training[@]}" --out "$out/training"
# One kind: graphs of large batches hold tens of GiB in each process.
part -m fairseq_mhe_cli bench training "${sizes[@]}" --attention mhe_mul --max-tokens "$most_tokens" "${training[@]}" \
    --out "$out/training-large"
part -m fairseq_mhe_cli bench generation "${sizes[@]}" "${generation[@]}" "${without[@]}" "${ctranslate2[@]}" --profile \
    --out "$out/generation"
part -m fairseq_mhe_cli quickstart --attention mhe_mul "${quickstart[@]}" --out "$out/quickstart"
part -m fairseq_mhe_cli translate "$out"/quickstart/{tiny-mhe_mul-seed1,data*/raw/test.en} "${translation[@]}" --out "$out/test.de"
exit "$status"
