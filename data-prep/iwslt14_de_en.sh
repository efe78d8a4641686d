#!/usr/bin/env bash
# Download IWSLT14 German-English and prepare it, by fairseq's recipe, as a data folder for fairseq-train.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/start.sh" fairseq corpus iwslt14_de_en "$@"
