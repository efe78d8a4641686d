#!/usr/bin/env bash
# Running text of one's own to a folder that language models train on.
source "$(dirname "${BASH_SOURCE[0]}")/prepare.sh" fairseq_mhe.prepare.corpora text "$@"
