#!/usr/bin/env bash
# Runs a study, one of collaborative-curve, uptrain, serving, gap-study, equal-budget, precision-study and collaborative-nlu:
# JSON and Markdown, of variants a picture too, in its --out. Stopped at any moment, the same command goes on from there. Those with --data
# train variants; run folders that run_table.sh has made in --out are taken:
#
#   collaborative-curve --data DATA --out OUT  BLEU against the width of collaborative attention, and MHA's
#   collaborative-nlu --runs RUN ...           scores of fine-tuned language models against that width
#   uptrain --data DATA --out OUT              smaller kinds from scratch and from a trained MHA
#   serving --run RUN                          plain text by each engine of translate
#   gap-study --data DATA --out OUT            what moves MHE's BLEU towards MHA's beyond the noise of seeds
#   equal-budget --data DATA --out OUT         every kind of attention at the same number of parameters
#   precision-study --data DATA --out OUT      training in bf16 against float32
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

[[ " $* " =~ \ (collaborative-curve|collaborative-nlu|uptrain|serving|gap-study|equal-budget|precision-study|-h|--help)\  ]] ||
    fail "name a study first: collaborative-curve, uptrain, serving, gap-study, equal-budget, precision-study or collaborative-nlu (--help says more)"
set_up fairseq,convert "$@"
export PYTHONPATH="$repository/scripts${PYTHONPATH:+:$PYTHONPATH}"
run -m studies
