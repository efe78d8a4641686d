# Sourced by the scripts here and in data-prep/: finds the Python that fairseq-mhe is installed for, or installs it.
# shellcheck shell=bash

# cd would look for folders along an exported CDPATH.
unset CDPATH
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# A module that each extra brings.
declare -A module_of=([fairseq]=fairseq [convert]=ctranslate2 [docs]=pdoc [test]=pytest)

fail() {
    echo "$(basename "$0"): error: $1" >&2
    exit 2
}

# is_supported PYTHON
is_supported() {
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null
}

# is_installed PYTHON EXTRAS: whether fairseq-mhe is there with its extras, other than by the current folder.
is_installed() {
    local extra modules=(fairseq_mhe)
    for extra in ${2//,/ }; do
        modules+=("${module_of[$extra]}")
    done
    is_supported "$1" && "$1" -P -c 'import importlib.util, sys
sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))' "${modules[@]}" 2>/dev/null
}

# find_python EXTRAS: sets $python, or returns 1 where something has to be installed.
find_python() {
    local other="${PYTHON:-}"
    stamp="$venv/.fairseq-mhe-installed-$1"
    versions="$repository $(cat "$repository/pyproject.toml" "$repository/constraints.txt" | sha256sum)"
    [[ -n "$other" || -e "$venv" ]] || other=python3
    if [[ -n "$other" && -z "$venv_named" ]] && is_installed "$other" "$1"; then
        python="$other"
    elif [[ -x "$venv/bin/python" && "$(cat "$stamp" 2>/dev/null)" == "$versions" ]]; then
        python="$venv/bin/python"
    else
        return 1
    fi
}

# base_python: prints the interpreter that makes the environment, or uv, which fetches one.
base_python() {
    local candidate candidates=(python3 python3.12 python3.11)
    [[ -z "${PYTHON:-}" ]] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        if is_supported "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    [[ -z "${PYTHON:-}" ]] || fail "\$PYTHON ($PYTHON) is no Python 3.11 or 3.12: name another, or none"
    command -v uv >/dev/null || fail "Python 3.11 or 3.12 is needed: install it, or uv (https://docs.astral.sh/uv),\
 which fetches 3.12, and run this again"
    echo uv
}

make_environment() {
    local base
    [[ -z "$(ls -A "$venv" 2>/dev/null)" ]] ||
        fail "$venv has no Python 3.11 or 3.12: remove it, or name another place with --venv"
    base="$(base_python)"
    echo "making the virtual environment $venv with $base" >&2
    if [[ "$base" == uv ]]; then
        uv venv --seed --python 3.12 -- "$venv" >&2
    else
        "$base" -m venv -- "$venv" >&2
    fi || fail "$base cannot make a virtual environment: see above (Debian and Ubuntu: apt install python3-venv)"
}

# install EXTRAS: puts the package with known-good versions into $venv. Of scripts started at once, one installs.
install() {
    exec 9<"$repository/constraints.txt"
    flock 9
    if ! find_python "$1"; then
        python="$venv/bin/python"
        is_supported "$python" || make_environment
        # uv makes environments without pip.
        "$python" -m pip --version >/dev/null 2>&1 || "$python" -m ensurepip >&2 || fail "$venv has no pip: see above"
        echo "installing fairseq-mhe (once; torch is large)" >&2
        if [[ "$torch" == cpu ]] || { [[ "$torch" == auto ]] && ! has_nvidia; }; then
            echo "taking torch without CUDA (--torch default: with CUDA, 5 GB)" >&2
            pip_install --no-deps --timeout 15 --retries 1 --index-url https://download.pytorch.org/whl/cpu torch ||
                echo "cannot get torch without CUDA, see above: taking it as published" >&2
        fi
        pip_install -e ".[$1]" || fail "the installation failed, see above; run the same command again"
        echo "$versions" >"$stamp"
    fi
    exec 9<&-
}

pip_install() {
    (cd "$repository" && "$python" -m pip install --disable-pip-version-check -c constraints.txt "$@" >&2)
}

has_nvidia() {
    compgen -G '/dev/nvidia[0-9]*' >/dev/null || [[ -e /dev/dxg ]] || nvidia-smi -L 2>/dev/null | grep -q GPU
}

# set_up EXTRAS WORD...: sets $python, and $options to all words but --venv DIR and --torch WHICH.
set_up() {
    local extras="$1" help=""
    shift
    venv_named="" torch=auto options=()
    while (($#)); do
        case "$1" in
            --venv=* | --torch=*)
                set -- "${1%%=*}" "${1#*=}" "${@:2}"
                continue
                ;;
            --venv)
                venv_named="${2:-}"
                [[ -n "$venv_named" ]] || fail "--venv needs a folder"
                shift
                ;;
            --torch)
                torch="${2:-}"
                [[ "$torch" =~ ^(auto|cpu|default)$ ]] || fail "--torch needs one of auto, cpu and default"
                shift
                ;;
            -h | --help)
                help=1
                options+=("$1")
                ;;
            *) options+=("$1") ;;
        esac
        shift
    done
    venv="$(realpath -m -- "${venv_named:-$repository/.venv}")"
    [[ "${PYTHON:-}" != */* ]] || PYTHON="$(realpath -s -- "$PYTHON")"
    [[ -z "$help" ]] || show_usage
    if ! find_python "$extras"; then
        [[ -z "$help" ]] || exit 0
        install "$extras"
    fi
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

# run WORD...: Python with these words and the options, and with the package of this repository.
run() {
    PYTHONPATH="$repository${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -P "$@" "${options[@]}"
}
