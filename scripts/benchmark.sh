#!/usr/bin/env bash
# Measures kinds of attention next to stock fairseq: attention, memory, training or generation, and options of
# `fairseq-mhe bench`. Nothing else should use the machine meanwhile.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq,convert fairseq_mhe.cli bench "$@"
