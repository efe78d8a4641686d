#!/usr/bin/env bash
# Measures kinds of attention beside stock fairseq, as `fairseq-mhe bench`. Nothing else should use the machine.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq,convert fairseq_mhe.cli bench "$@"
