#!/usr/bin/env bash
# Translates a data set with the averaged model of a run folder, and scores it: BLEU with sacreBLEU's signature, chrF, and
# the older literature's tokenised BLEU. Finished work is skipped.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli evaluate "$@"
