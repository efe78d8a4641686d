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
options=() out="$repository/runs/gpu" data="" minutes=8 status=0 limit=() ctranslate2=(--ctranslate2) graphs=(--cuda-graphs)
sizes=(--row base --device cuda --threads 1) quickstart=(--precision fp16 --updates 200)
generation=(--beams 5 --sentences 200 --batch-sizes "32,200" --dtype fp16 --repetitions 1)
training=(--attention "mha,mhe_mul,mhe_conv" --max-tokens "4096,16384" --dtype "bf16,fp16" --batches 10 --repetitions 1)
without=(--dtype bf16 --max-tokens 4096) translation=(--engine fairseq --precision fp16)
while (($#)); do
    case "$1" in
        --out | --data | --minutes)
            [[ -n "${2:-}" ]] || fail "$1 needs a value"
            declare "${1#--}=$2" && shift ;;
        --cpu)
            limit=(--limit 200) quickstart=(--limit 200 --updates 20 --cpu) translation=(--cpu) graphs=()
            sizes=(--row tiny --device cpu --threads 1 --vocab-size 10000)
            generation=(--beams 2 --sentences 3 --batch-sizes 2 --repetitions 1)
            training=(--attention mha --max-tokens 512 --batches 1 --repetitions 1) without=()
            ;;
        *) fail "unknown option $1: --help lists them" ;;
    esac
    shift
done
[[ "$minutes" =~ ^(0|[1-9][0-9]{0,3})$ ]] || fail "--minutes needs a whole number up to 9999"
SECONDS=0 # without the installation
export PYTHONPATH="$repository${PYTHONPATH:+:$PYTHONPATH}"

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
    part -m fairseq_mhe.prepare.corpora home_assistant_en_de "${limit[@]}" --out "$data"
fi
part -m pytest -q "$repository"/tests/{attention/test_devices,models/test_graphs,models/test_decoding_graphs}.py
# CTranslate2 opens the cuBLAS of CUDA 12; torch for CUDA 13 brings another.
if [[ "${sizes[*]}" == *cuda* ]] && ! "$python" -P -c 'import ctypes, torch; ctypes.CDLL("libcublas.so.12")' 2>/dev/null; then
    echo "gpu_check.sh: CTranslate2 is left out: pip install nvidia-cublas-cu12, and name its folder in LD_LIBRARY_PATH" >&2
    ctranslate2=() status=1
fi
for report in "$out"/{generation,training}{,-without}.{json,md}; do # bench would refuse those of other software
    [[ ! -e "$report" ]] || mv --backup=numbered -- "$report" "$report.earlier"
done
part -m fairseq_mhe.cli bench generation "${sizes[@]}" --attention mha,mhe_mul "${generation[@]}" "${ctranslate2[@]}" \
    --out "$out/generation"
part -m fairseq_mhe.cli bench training "${sizes[@]}" "${training[@]}" "${graphs[@]}" --data "$data" --out "$out/training"
part -m fairseq_mhe.cli quickstart --attention mhe_mul "${quickstart[@]}" --out "$out/quickstart"
part -m fairseq_mhe.cli translate "$out"/quickstart/{tiny-mhe_mul-seed1,data*/raw/test.en} "${translation[@]}" --out "$out/test.de"
# Without graphs; and torch's variable keeps stock fairseq from cuDNN's attention, which our models avoid anyway.
export TORCH_CUDNN_SDPA_DEPRIORITIZED=1 FAIRSEQ_MHE_CUDA_GRAPHS=0
part -m fairseq_mhe.cli bench generation "${sizes[@]}" --attention mha,mhe_mul "${generation[@]}" \
    --out "$out/generation-without"
part -m fairseq_mhe.cli bench training "${sizes[@]}" "${training[@]}" "${without[@]}" --data "$data" \
    --out "$out/training-without"
exit "$status"
