# Sourced by scripts that work from nothing: makes the virtual environment and installs the package, once.
# shellcheck shell=bash

repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

fail() {
    echo "$(basename "$0"): error: $1" >&2
    exit 2
}

version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo "no working Python"
}

is_supported() {
    [[ "$(version_of "$1")" == 3.11 || "$(version_of "$1")" == 3.12 ]]
}

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.12 python3.11; do
        if is_supported "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "Python 3.11 or 3.12 is needed, and python3 is $(version_of python3): install python3.12, or name one in \$PYTHON"
}

# make_environment VENV
make_environment() {
    if [[ -e "$1" && ! -f "$1/pyvenv.cfg" && -n "$(ls -A "$1" 2>/dev/null || echo file)" ]]; then
        fail "$1 exists and is no virtual environment: name another place with --venv"
    fi
    local python
    python="$(find_python)"
    echo "making the virtual environment $1 with $python ($(version_of "$python"))" >&2
    # --clear: one that was left half-made is made anew.
    "$python" -m venv --clear -- "$1" >&2 ||
        fail "$python cannot make a virtual environment in $1: see above (Debian and Ubuntu: apt install python3-venv)"
}

# install_package VENV EXTRAS: the package with the extras and the known-good versions, unless that was done before.
install_package() {
    # What was installed last is known by what decides it.
    local stamp="$1/.fairseq-mhe-installed-$2" wanted
    wanted="$repository $(cat "$repository/setup.py" "$repository/constraints.txt" | sha256sum)"
    if [[ "$(cat "$stamp" 2>/dev/null)" == "$wanted" ]]; then
        return
    fi
    if ! "$1/bin/python" -m pip --version >/dev/null 2>&1; then
        make_environment "$1"
    fi
    is_supported "$1/bin/python" ||
        fail "$1 is of Python $(version_of "$1/bin/python"), 3.11 or 3.12 is needed: remove it, or name another with --venv"
    echo "installing fairseq-mhe (once; torch is large)" >&2
    (cd "$repository" && "$1/bin/python" -m pip install --disable-pip-version-check \
        -c constraints.txt -e ".[$2]" >&2) || fail "the installation failed, see above; run the same command again"
    echo "$wanted" >"$stamp"
}

# read_options WORD...: sets venv (--venv DIR) and options (all other words); --help shows the script's usage.
read_options() {
    venv="$repository/.venv"
    options=()
    while (($#)); do
        case "$1" in
            -h | --help)
                usage
                exit 0
                ;;
            --venv)
                [[ $# -ge 2 && -n "$2" ]] || fail "--venv needs a folder"
                venv="$2"
                shift
                ;;
            --venv=*) venv="${1#--venv=}" ;;
            *) options+=("$1") ;;
        esac
        shift
    done
    [[ "$venv" == /* ]] || venv="$PWD/$venv"
}
