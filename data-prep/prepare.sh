# Sourced by the scripts here with MODULE OPTION...: runs the module, installed first where it is missing.
# shellcheck shell=bash
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/environment.sh"
start fairseq "$@"
