#!/usr/bin/env bash
# Measures the preparation of text beside the classic pipeline: makes a long parallel text from the embedded corpus, and
# prepares it in our way and as fairseq's prepare-wmt14en2de.sh does: Moses' perl scripts (of the package mosestokenizer,
# which is installed, or of a clone of Moses), subword-nmt, fairseq-preprocess. It needs perl. Stopped at any moment, the
# same command goes on with the run it was at. Nothing else should use the machine meanwhile.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

set_up fairseq "$@"
if [[ ! " ${options[*]-} " =~ \ (--moses.*|--help|-h)\  ]] &&
    ! "$python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("mosestokenizer"))'; then
    # Without what it depends on: only the perl scripts in it are called.
    "$python" -m pip install --disable-pip-version-check --no-deps -c "$repository/constraints.txt" \
        mosestokenizer >&2 || fail "mosestokenizer cannot be installed, see above"
fi
export PYTHONPATH="$repository/results/prepare${PYTHONPATH:+:$PYTHONPATH}"
run -m compare
