# Sourced by the scripts here and in data-prep/: finds a Python that has fairseq-mhe, or installs fairseq-mhe.
# shellcheck shell=bash
set -euo pipefail

unset CDPATH # if it is exported, cd may change to another folder
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
declare -A module_of=([experiments]=rich [fairseq]=fairseq [convert]=ctranslate2 [test]=pytest) # extra of pyproject.toml -> a module of it

fail() {
    echo "$(basename "$0"): error: $1" >&2
    exit 2
}

with_wheels="3.11 3.12" # versions of Python for which PyPI has wheels of fairseq
supported="$with_wheels 3.13"

# is_suitable VERSIONS PYTHON MODULE...: succeeds if PYTHON has one of the versions and the modules (-P: not in this folder).
is_suitable() {
    "$2" -P -c 'import importlib.util, sys
is_version = "%d.%d" % sys.version_info[:2] in sys.argv[1].split()
sys.exit(not is_version or not all(map(importlib.util.find_spec, sys.argv[2:])))' "$1" "${@:3}" 2>/dev/null
}

# find_python: sets $python. Without --venv it is $PYTHON (or python3 if there is no $venv), if that has fairseq-mhe. Else
# it is $venv's; then returns 1 if $venv has no finished installation of these versions from this folder.
find_python() {
    local candidate="${PYTHON:-}" modules=(fairseq_mhe) extra
    for extra in ${extras//,/ }; do modules+=("${module_of[$extra]}"); done
    fingerprint="$repository $(cat "$repository/pyproject.toml" "$repository/constraints.txt" | sha256sum)"
    [[ -n "$candidate" || -e "$venv" ]] || candidate=python3
    if [[ -n "$candidate" && -z "$venv_named" ]] && is_suitable "$supported" "$candidate" "${modules[@]}"; then
        python="$candidate"
    else
        python="$venv/bin/python"
        [[ -x "$python" && "$(cat "$venv/.fairseq-mhe-installed-$extras" 2>/dev/null)" == "$fingerprint" ]]
    fi
}

# make_environment: makes $venv by $PYTHON, by the first Python with wheels, by uv, or by Python 3.13 and a compiler.
make_environment() {
    [[ -z "$(ls -A "$venv" 2>/dev/null)" ]] ||
        fail "$venv has no Python ${supported// /, }: remove it, or name another folder with --venv"
    if [[ -n "${PYTHON:-}" ]]; then
        by_python "$supported" "$PYTHON" ||
            fail "\$PYTHON ($PYTHON) is no Python ${with_wheels/ / or }, nor 3.13 with a C++ compiler and headers: set it to another, or unset it"
    else
        by_python "$with_wheels" python3 python3.12 python3.11 || by_uv || by_python 3.13 python3 python3.13 ||
            fail "no Python 3.11 or 3.12 is here, and uv cannot fetch one: install Python 3.12 and its venv, \
or for Python 3.13 a C++ compiler and Python's headers (Debian, Ubuntu: apt install python3-venv python3-dev g++)"
    fi
}

# by_python VERSIONS PYTHON...: makes $venv by the first Python that has one of the versions; returns 1 if none has.
by_python() {
    local candidate
    for candidate in "${@:2}"; do
        is_suitable "$1" "$candidate" || continue
        is_suitable "$with_wheels" "$candidate" || can_compile "$candidate" || continue
        echo "making the virtual environment $venv with $candidate" >&2
        "$candidate" -m venv -- "$venv" >&2 ||
            fail "$candidate cannot make a virtual environment: see above (Debian and Ubuntu: apt install python3-venv)"
        return 0
    done
    return 1
}

# by_uv: makes $venv by uv, which fetches Python 3.12; if uv is not on the PATH, PyPI's uv. Returns 1 if that fails.
by_uv() {
    local uv=uv folder="" status=0
    if ! command -v uv >/dev/null; then
        folder="$(mktemp -d)"
        uv="$folder/bin/uv"
        echo "installing uv, which fetches Python 3.12" >&2
        { python3 -m venv -- "$folder" && "$folder/bin/python" -m pip install --retries 1 --timeout 15 uv; } &>/dev/null
    fi
    if command -v "$uv" >/dev/null; then
        echo "making the virtual environment $venv with uv" >&2
        "$uv" venv --seed --python 3.12 -- "$venv" >&2 || status=1
    else
        status=1
    fi
    [[ -z "$folder" ]] || rm -rf -- "$folder"
    return "$status"
}

# can_compile PYTHON: succeeds if fairseq's C++ parts can be compiled for it: without wheels they must be.
can_compile() {
    command -v "${CXX:-c++}" >/dev/null &&
        "$1" -P -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null
}

# install: installs fairseq-mhe into $venv, with the versions of constraints.txt. The lock makes other scripts wait.
install() {
    local compile=()
    flock 9
    ! find_python || return 0 # another script has just installed it
    is_suitable "$supported" "$python" || make_environment
    echo "installing fairseq-mhe (only once; torch is large)" >&2
    if [[ "$torch" == cpu ]] || { [[ "$torch" == auto ]] && ! has_nvidia; }; then
        echo "installing torch without CUDA, 200 MB (--torch default installs it with CUDA, 5 GB)" >&2
        # pip's errors are left out: they look fatal, but another torch follows.
        pip_install --quiet --no-deps --timeout 15 --retries 1 --index-url https://download.pytorch.org/whl/cpu torch 2>/dev/null ||
            echo "torch without CUDA cannot be downloaded here: installing PyPI's torch, which has CUDA and works, too" >&2
    fi
    if ! is_suitable "$with_wheels" "$python"; then
        echo "compiling fairseq, which takes some minutes" >&2
        compile=(--no-build-isolation) # its build imports torch
        pip_install torch numpy wheel 'setuptools>=77,<81' 'cython<3.2' || fail "the installation failed, see above"
    fi
    pip_install "${compile[@]}" -e ".[$extras]" || fail "the installation failed, see above; run the same command again"
    echo "$fingerprint" >"$venv/.fairseq-mhe-installed-$extras"
} 9<"$repository/constraints.txt"

pip_install() (cd "$repository" && "$python" -m pip install --disable-pip-version-check -c constraints.txt "$@" >&2)

has_nvidia() { compgen -G '/dev/nvidia[0-9]*' >/dev/null || [[ -e /dev/dxg ]] || nvidia-smi -L 2>/dev/null | grep -q GPU; }

# set_up EXTRAS WORD...: sets $python, after an installation if needed, and $options: all words but --venv and --torch.
set_up() {
    extras="experiments,$1" venv_named="" torch=auto options=()
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

# run WORD...: runs $python with the words and $options, and with the package of this repository.
run() {
    PYTHONPATH="$repository:$repository/scripts${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -P "$@" "${options[@]}"
}
