# The scripts here and in data-prep/ source this with EXTRAS MODULE OPTION...: it calls `start` of environment.sh.
# shellcheck shell=bash
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start "$@"
