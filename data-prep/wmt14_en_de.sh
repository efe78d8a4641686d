#!/usr/bin/env bash
# WMT14 English-German, from the public archives to a data folder that fairseq-train reads.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/prepare.sh" fairseq_mhe.prepare.corpora wmt14_en_de "$@"
