#!/usr/bin/env bash
# Run a study: NAME, a file NAME.yaml of scripts/studies/ (its options are run-table's), collaborative-nlu or serving.
# The same command resumes. The runs and the report go to runs/NAME, or to --out OUT. Finished runs of run_table.sh in
# the same folder are used, not trained again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
set_up fairseq,convert "$@"
studies="$repository/scripts/studies" study="${options[0]:-}"
if [[ -f "$studies/$study.yaml" ]]; then
    options=("${options[@]:1}")
    run -m fairseq_mhe_cli run-table --study "$studies/$study.yaml" --out "runs/$study"
elif [[ "$study" == collaborative-nlu || "$study" == serving ]]; then
    options=("${options[@]:1}")
    export PYTHONPATH="$studies${PYTHONPATH:+:$PYTHONPATH}"
    run -m "${study//-/_}"
elif [[ "$study" == --help || "$study" == -h ]]; then
    run -m fairseq_mhe_cli run-table
fi
fail "give the name of a study: $(basename -s .yaml -a "$studies"/*.yaml | tr '\n' ' ')collaborative-nlu serving"
