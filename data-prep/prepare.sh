# The scripts here source this with MODULE OPTION...; it runs the module, and installs fairseq-mhe if needed.
# shellcheck shell=bash
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/environment.sh"
start fairseq "$@"
