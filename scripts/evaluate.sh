#!/usr/bin/env bash
# Translate a data set with the averaged model of a run folder, and score it: BLEU, chrF, older papers' tokenised BLEU.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh" fairseq evaluate "$@"
