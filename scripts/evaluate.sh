#!/usr/bin/env bash
# Translates a data set with the averaged model of RUN, a folder that train.sh made, and scores it: BLEU with
# sacreBLEU's signature, chrF, the older literature's tokenised BLEU. What is done already is not done again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli evaluate "$@"
