# Sourced by the scripts here and in data-prep/: finds the Python that fairseq-mhe is installed for, or installs it.
# shellcheck shell=bash
set -euo pipefail

# cd would look for folders along an exported CDPATH.
unset CDPATH
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
declare -A module_of=([fairseq]=fairseq [convert]=ctranslate2 [test]=pytest) # one that each extra brings

fail() {
    echo "$(basename "$0"): error: $1" >&2
    exit 2
}

# serves PYTHON MODULE...: whether it is Python 3.11 or 3.12 and has the modules, other than by the current folder.
serves() {
    "$1" -P -c 'import importlib.util, sys
supported = sys.version_info[:2] in ((3, 11), (3, 12))
sys.exit(not supported or not all(map(importlib.util.find_spec, sys.argv[1:])))' "${@:2}" 2>/dev/null
}

# find_python: sets $python, or returns 1 where something has to be installed.
find_python() {
    local other="${PYTHON:-}" modules=(fairseq_mhe) extra
    for extra in ${extras//,/ }; do modules+=("${module_of[$extra]}"); done
    versions="$repository $(cat "$repository/pyproject.toml" "$repository/constraints.txt" | sha256sum)"
    [[ -n "$other" || -e "$venv" ]] || other=python3
    if [[ -n "$other" && -z "$venv_named" ]] && serves "$other" "${modules[@]}"; then
        python="$other"
    else
        python="$venv/bin/python"
        [[ -x "$python" && "$(cat "$venv/.fairseq-mhe-installed-$extras" 2>/dev/null)" == "$versions" ]]
    fi
}

make_environment() {
    local name names=("${PYTHON:-python3}") maker=(uv venv --seed --python 3.12)
    [[ -n "${PYTHON:-}" ]] || names+=(python3.12 python3.11)
    [[ -z "$(ls -A "$venv" 2>/dev/null)" ]] ||
        fail "$venv has no Python 3.11 or 3.12: remove it, or name another place with --venv"
    for name in "${names[@]}"; do ! serves "$name" || { maker=("$name" -m venv) && break; }; done
    [[ -z "${PYTHON:-}" || "${maker[0]}" != uv ]] ||
        fail "\$PYTHON ($PYTHON) is no Python 3.11 or 3.12: name another, or none"
    command -v "${maker[0]}" >/dev/null ||
        fail "Python 3.11 or 3.12 is needed: install it, or uv (https://docs.astral.sh/uv), which fetches 3.12"
    echo "making the virtual environment $venv with ${maker[0]}" >&2
    "${maker[@]}" -- "$venv" >&2 ||
        fail "${maker[0]} cannot make a virtual environment: see above (Debian and Ubuntu: apt install python3-venv)"
}

# install: puts the package with known-good versions into $venv. Of scripts started at once, one installs.
install() {
    flock 9
    ! find_python || return 0
    serves "$python" || make_environment
    echo "installing fairseq-mhe (once; torch is large)" >&2
    if [[ "$torch" == cpu ]] || { [[ "$torch" == auto ]] && ! has_nvidia; }; then
        echo "taking torch without CUDA (--torch default: with CUDA, 5 GB)" >&2
        pip_install --no-deps --timeout 15 --retries 1 --index-url https://download.pytorch.org/whl/cpu torch ||
            echo "cannot get torch without CUDA, see above: taking it as published" >&2
    fi
    pip_install -e ".[$extras]" || fail "the installation failed, see above; run the same command again"
    echo "$versions" >"$venv/.fairseq-mhe-installed-$extras"
} 9<"$repository/constraints.txt"

pip_install() {
    (cd "$repository" && "$python" -m pip install --disable-pip-version-check -c constraints.txt "$@" >&2)
}

has_nvidia() { compgen -G '/dev/nvidia[0-9]*' >/dev/null || [[ -e /dev/dxg ]] || nvidia-smi -L 2>/dev/null | grep -q GPU; }

# set_up EXTRAS WORD...: sets $python, and $options to all words but --venv DIR and --torch WHICH.
set_up() {
    extras="$1" venv_named="" torch=auto options=()
    local help=""
    shift
    while (($#)); do
        case "$1" in
            --venv=* | --torch=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" && continue ;;
            --venv) venv_named="${2:-}" && shift && [[ -n "$venv_named" ]] || fail "--venv needs a folder" ;;
            --torch) torch="${2:-}" && shift && [[ "$torch" =~ ^(cpu|default)$ ]] || fail "--torch needs cpu or default" ;;
            -h | --help) help=1 ;;&
            *) options+=("$1") ;;
        esac
        shift
    done
    venv="$(realpath -m -- "${venv_named:-$repository/.venv}")"
    [[ "${PYTHON:-}" != */* ]] || PYTHON="$(realpath -s -- "$PYTHON")"
    [[ -z "$help" ]] || show_usage
    find_python || { [[ -n "$help" ]] && exit; } || install
}

show_usage() {
    cat <<END
usage: bash $0 [--venv DIR] [--torch WHICH] [OPTION...]

$(sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0")

  --venv DIR   virtual environment, made by \$PYTHON, python3, python3.12, python3.11 or uv where it is missing
               (default: .venv in the repository)
  --torch cpu|default   torch of a new environment: without CUDA, or as published (default: cpu without an NVIDIA device)

The other options are those of the command, which lists them here once fairseq-mhe is installed:

END
}

# start EXTRAS MODULE WORD...: runs the module with the words, installed first where it is missing.
start() {
    set_up "$1" "${@:3}"
    run -m "$2"
}

# run WORD...: Python with these words and the options, and with the package of this repository.
run() {
    PYTHONPATH="$repository${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -P "$@" "${options[@]}"
}
