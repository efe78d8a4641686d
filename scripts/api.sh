#!/usr/bin/env bash
# API pages from the docstrings of all modules, by pdoc without a network: runs/api/index.html, or in -o DIR.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
set_up fairseq,docs "$@"
# pdoc takes the last -o: the options come last. A bundle's examples are programs, which would run when they are imported.
run -m pdoc -o "$repository/runs/api" --docformat google fairseq_mhe '!fairseq_mhe.deploy.examples'
