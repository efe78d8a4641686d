# Sourced by the scripts here and in data-prep/: finds a Python that has fairseq-mhe, or installs fairseq-mhe.
# shellcheck shell=bash
set -euo pipefail

unset CDPATH # if it is exported, cd may change to another folder
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
declare -A module_of=([fairseq]=fairseq [convert]=ctranslate2 [test]=pytest) # extra of pyproject.toml -> a module of it

fail() {
    echo "$(basename "$0"): error: $1" >&2
    exit 2
}

# is_suitable PYTHON MODULE...: succeeds if PYTHON is 3.11 or 3.12 and has the modules (-P: not in the current folder).
is_suitable() {
    "$1" -P -c 'import importlib.util, sys
supported = sys.version_info[:2] in ((3, 11), (3, 12))
sys.exit(not supported or not all(map(importlib.util.find_spec, sys.argv[1:])))' "${@:2}" 2>/dev/null
}

# find_python: sets $python. Without --venv it is $PYTHON (or python3 if there is no $venv), if that has fairseq-mhe. Else
# it is $venv's; then returns 1 if $venv has no finished installation of these versions from this folder.
find_python() {
    local candidate="${PYTHON:-}" modules=(fairseq_mhe) extra
    for extra in ${extras//,/ }; do modules+=("${module_of[$extra]}"); done
    fingerprint="$repository $(cat "$repository/pyproject.toml" "$repository/constraints.txt" | sha256sum)"
    [[ -n "$candidate" || -e "$venv" ]] || candidate=python3
    if [[ -n "$candidate" && -z "$venv_named" ]] && is_suitable "$candidate" "${modules[@]}"; then
        python="$candidate"
    else
        python="$venv/bin/python"
        [[ -x "$python" && "$(cat "$venv/.fairseq-mhe-installed-$extras" 2>/dev/null)" == "$fingerprint" ]]
    fi
}

# make_environment: makes $venv with the first suitable Python, or if there is none with uv, which downloads one.
make_environment() {
    local candidate candidates=("${PYTHON:-python3}") maker=(uv venv --seed --python 3.12)
    [[ -n "${PYTHON:-}" ]] || candidates+=(python3.12 python3.11)
    [[ -z "$(ls -A "$venv" 2>/dev/null)" ]] ||
        fail "$venv has no Python 3.11 or 3.12: remove it, or name another folder with --venv"
    for candidate in "${candidates[@]}"; do
        if is_suitable "$candidate"; then maker=("$candidate" -m venv) && break; fi
    done
    [[ -z "${PYTHON:-}" || "${maker[0]}" != uv ]] ||
        fail "\$PYTHON ($PYTHON) is no Python 3.11 or 3.12: set it to another Python, or unset it"
    command -v "${maker[0]}" >/dev/null ||
        fail "Python 3.11 or 3.12 is needed: install it, or uv (https://docs.astral.sh/uv), which fetches 3.12"
    echo "making the virtual environment $venv with ${maker[0]}" >&2
    "${maker[@]}" -- "$venv" >&2 ||
        fail "${maker[0]} cannot make a virtual environment: see above (Debian and Ubuntu: apt install python3-venv)"
}

# install: installs fairseq-mhe into $venv, with the versions of constraints.txt. The lock makes other scripts wait.
install() {
    flock 9
    ! find_python || return 0 # another script has just installed it
    is_suitable "$python" || make_environment
    echo "installing fairseq-mhe (only once; torch is large)" >&2
    if [[ "$torch" == cpu ]] || { [[ "$torch" == auto ]] && ! has_nvidia; }; then
        echo "installing torch without CUDA (--torch default installs it with CUDA, 5 GB)" >&2
        pip_install --no-deps --timeout 15 --retries 1 --index-url https://download.pytorch.org/whl/cpu torch ||
            echo "cannot get torch without CUDA, see above: installing torch as published on PyPI" >&2
    fi
    pip_install -e ".[$extras]" || fail "the installation failed, see above; run the same command again"
    echo "$fingerprint" >"$venv/.fairseq-mhe-installed-$extras"
} 9<"$repository/constraints.txt"

pip_install() (cd "$repository" && "$python" -m pip install --disable-pip-version-check -c constraints.txt "$@" >&2)

has_nvidia() { compgen -G '/dev/nvidia[0-9]*' >/dev/null || [[ -e /dev/dxg ]] || nvidia-smi -L 2>/dev/null | grep -q GPU; }

# set_up EXTRAS WORD...: sets $python, after an installation if needed, and $options: all words but --venv and --torch.
set_up() {
    extras="$1" venv_named="" torch=auto options=()
    local help=""
    shift
    while (($#)); do
        case "$1" in
            --venv=* | --torch=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" && continue ;;
            --venv) venv_named="${2:-}" && shift && [[ -n "$venv_named" ]] || fail "--venv needs a folder" ;;
            --torch) torch="${2:-}" && shift && [[ "$torch" =~ ^(cpu|default)$ ]] || fail "--torch needs cpu or default" ;;
            -h | --help) help=1 ;;& # goes on to the next pattern: the command gets the option, too
            *) options+=("$1") ;;
        esac
        shift
    done
    venv="$(realpath -m -- "${venv_named:-$repository/.venv}")"
    [[ "${PYTHON:-}" != */* ]] || PYTHON="$(realpath -s -- "$PYTHON")" # before any script changes the folder
    [[ -z "$help" ]] || show_usage
    find_python || { [[ -n "$help" ]] && exit; } || install
}

show_usage() {
    cat <<END
usage: bash $0 [--venv DIR] [--torch WHICH] [OPTION...]

$(sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0")

  --venv DIR   virtual environment; if it is missing, \$PYTHON, python3, python3.12, python3.11 or uv makes it
               (default: .venv in the repository)
  --torch cpu|default   torch of a new environment: without CUDA, or as published (default: cpu without an NVIDIA device)

END
    ! grep -q '^#   --' "$0" || exit 0 # its first lines, above, list all its options
    printf 'All other options go to the command. Once fairseq-mhe is installed, it lists them here:\n\n'
}

# start EXTRAS MODULE WORD...: installs fairseq-mhe if it is missing, and runs MODULE with the words.
start() {
    set_up "$1" "${@:3}"
    run -m "$2"
}

# run WORD...: runs $python with the words and $options, and with the package of this repository.
run() {
    PYTHONPATH="$repository${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -P "$@" "${options[@]}"
}
