#!/usr/bin/env bash
# IWSLT14 German-English, prepared as by fairseq's recipe, from the public archive to a data folder that fairseq-train reads.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/prepare.sh" fairseq_mhe.prepare.corpora iwslt14_de_en "$@"
