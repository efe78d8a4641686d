# The scripts here and in data-prep/ source this with EXTRAS COMMAND OPTION...: installs fairseq-mhe if it is missing, and
# runs its command.
# shellcheck shell=bash
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
set_up "$@"
run -m fairseq_mhe_cli
