#!/usr/bin/env bash
# Translate a data set with the averaged model of a run folder, and score it: BLEU, chrF, older papers' tokenised BLEU.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli evaluate "$@"
