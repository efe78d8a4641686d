# Sourced by the scripts here and in data-prep/: finds the Python that fairseq-mhe is installed for, or makes one.
# shellcheck shell=bash

# An exported one would have cd go elsewhere, and print where.
unset CDPATH
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
torch_index="https://download.pytorch.org/whl/cpu"

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

# choose_python: prints the interpreter that makes environments ($PYTHON where it is set), or uv, which fetches one.
choose_python() {
    local candidate
    if [[ -n "${PYTHON:-}" ]]; then
        is_supported "$PYTHON" ||
            fail "Python 3.11 or 3.12 is needed, and \$PYTHON ($PYTHON) is $(version_of "$PYTHON"): name another, or none"
        echo "$PYTHON"
        return
    fi
    for candidate in python3 python3.12 python3.11; do
        if is_supported "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    # Debian 13 has Python 3.13 only, for which the maintained fairseq has no wheel.
    if command -v uv >/dev/null; then
        echo uv
        return
    fi
    fail "Python 3.11 or 3.12 is needed, and python3 is $(version_of python3): install uv (https://docs.astral.sh/uv), which\
 fetches 3.12, and run this again; or name a 3.12 in \$PYTHON, from 'pyenv install 3.12' or 'conda create -n py312 python=3.12'"
}

# is_installed PYTHON EXTRAS: whether fairseq-mhe and what the extras bring are there, other than by the current folder.
is_installed() {
    local modules=(fairseq_mhe fairseq torch sacrebleu langcodes sacremoses safetensors subword_nmt sentencepiece)
    [[ "$2" != *convert* ]] || modules+=(ctranslate2 tensorly)
    [[ "$2" != *slurm* ]] || modules+=(submitit)
    [[ "$2" != *docs* ]] || modules+=(pdoc)
    [[ "$2" != *test* ]] || modules+=(pytest xdist hypothesis ruff mypy)
    "$1" -P -c 'import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))' \
        "${modules[@]}" 2>/dev/null
}

# find_python EXTRAS: sets $python where nothing has to be installed; fails where $PYTHON cannot be had as it is.
find_python() {
    python=""
    stamp="$venv/.fairseq-mhe-installed-$1"
    # What was installed last is known by what decides it.
    wanted="$repository $(cat "$repository/pyproject.toml" "$repository/constraints.txt" | sha256sum)"
    if [[ -n "${PYTHON:-}" ]]; then
        # Scripts change the folder before they start it.
        [[ "$PYTHON" == /* || "$PYTHON" != */* ]] || PYTHON="$PWD/$PYTHON"
        choose_python >/dev/null
        if [[ -z "$venv_named" ]] && is_installed "$PYTHON" "$1"; then
            python="$PYTHON"
        elif [[ -x "$venv/bin/python" && "$(base_of "$venv/bin/python")" != "$(base_of "$PYTHON")" ]]; then
            fail "$venv is of another Python than \$PYTHON ($PYTHON): remove it, name another with --venv, or unset PYTHON"
        fi
    elif [[ -z "$venv_named" && ! -e "$venv" ]] && is_supported python3 && is_installed python3 "$1"; then
        python="python3"
    fi
    if [[ -z "$python" && -x "$venv/bin/python" && "$(cat "$stamp" 2>/dev/null)" == "$wanted" ]]; then
        python="$venv/bin/python"
    fi
}

# base_of PYTHON: where the interpreter lies that it, or its environment, was made with.
base_of() {
    "$1" -c 'import sys; print(sys.base_prefix)' 2>/dev/null
}

# make_environment: makes $venv. It is marked from the first moment, so that only what was made here is ever cleared.
make_environment() {
    local base version making="$venv/.fairseq-mhe-making" made="$venv/.fairseq-mhe-made"
    if [[ -e "$venv" && ! -e "$making" && ! -e "$made" && -n "$(ls -A "$venv" 2>/dev/null || echo file)" ]]; then
        fail "$venv exists and is no working virtual environment: remove it, or name another place with --venv"
    fi
    base="$(choose_python)"
    version="3.12"
    [[ "$base" == uv ]] || version="$(version_of "$base")"
    echo "making the virtual environment $venv with $base ($version)" >&2
    mkdir -p -- "$venv"
    touch -- "$making"
    # Hidden files too: what was installed is said by some.
    find "$venv/" -mindepth 1 -maxdepth 1 ! -name .fairseq-mhe-making -exec rm -rf -- {} +
    create_venv "$base"
    mv -- "$making" "$made"
}

# create_venv BASE: fills $venv, with pip.
create_venv() {
    if [[ "$1" == uv ]]; then
        # --allow-existing: the folder has a mark that it is being made.
        uv venv --seed --allow-existing --python 3.12 -- "$venv" >&2 ||
            fail "uv cannot make a virtual environment of Python 3.12 in $venv: see above"
    else
        "$1" -m venv -- "$venv" >&2 ||
            fail "$1 cannot make a virtual environment in $venv: see above (Debian and Ubuntu: apt install python3-venv)"
    fi
}

# install EXTRAS: makes the environment where it is missing, and puts the package with known-good versions into it.
install() {
    python="$venv/bin/python"
    if [[ -e "$venv/.fairseq-mhe-making" ]] || ! "$python" -c "" >/dev/null 2>&1; then
        make_environment
    fi
    is_supported "$python" ||
        fail "$venv is of Python $(version_of "$python"), 3.11 or 3.12 is needed: remove it, or name another with --venv"
    # uv and --without-pip make environments without.
    "$python" -m pip --version >/dev/null 2>&1 || "$python" -m ensurepip >&2 ||
        fail "$venv has no pip, and cannot be given it, see above: add pip to it, or name another place with --venv"
    echo "installing fairseq-mhe (once; torch is large)" >&2
    install_torch
    (cd "$repository" && "$python" -m pip install --disable-pip-version-check \
        -c constraints.txt -e ".[$1]" >&2) || fail "the installation failed, see above; run the same command again"
    [[ "$torch" == auto ]] || echo "$torch" >"$venv/.fairseq-mhe-torch"
    echo "$wanted" >"$stamp"
}

# install_alone EXTRAS: of scripts that are started at once, one installs and the others wait for it.
install_alone() {
    exec 9<"$repository/constraints.txt"
    if command -v flock >/dev/null && ! flock --nonblock 9; then
        echo "waiting for another script, which is installing" >&2
        flock 9 || true
    fi
    find_python "$1"
    [[ -n "$python" ]] || install "$1"
    exec 9<&-
}

has_nvidia() {
    compgen -G '/dev/nvidia[0-9]*' >/dev/null || [[ -e /dev/dxg ]] || nvidia-smi -L 2>/dev/null | grep -q GPU
}

# install_torch: torch without CUDA, which is 5 GB, where nothing here could use it; else pip takes it as it is published.
install_torch() {
    case "$torch" in
        default) return ;;
        auto) ! has_nvidia || return 0 ;;
    esac
    if "$python" -P -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec(sys.argv[1]))' torch 2>/dev/null; then
        return
    fi
    echo "taking torch for CPUs from $torch_index: no NVIDIA device is here (--torch default: as published, with CUDA)" >&2
    # An index that cannot be reached is given up soon; pip's other sources serve too.
    (cd "$repository" && "$python" -m pip install --disable-pip-version-check --timeout 15 --retries 1 --no-deps \
        --index-url "$torch_index" -c constraints.txt torch >&2) ||
        echo "torch for CPUs cannot be had from there, see above: taking it as it is published" >&2
}

# set_up EXTRAS WORD...: sets $python, and $options (all words but --venv DIR and --torch WHICH). Where nothing is installed yet, --help
# says what the comment at the head of the script says; else it is left to the command.
set_up() {
    local extras="$1" help=""
    shift
    venv="$repository/.venv"
    venv_named=""
    torch="auto"
    options=()
    while (($#)); do
        case "$1" in
            --venv)
                [[ $# -ge 2 && -n "$2" ]] || fail "--venv needs a folder"
                venv_named="$2"
                shift
                ;;
            --venv=*)
                venv_named="${1#--venv=}"
                [[ -n "$venv_named" ]] || fail "--venv needs a folder"
                ;;
            --torch)
                [[ $# -ge 2 ]] || fail "--torch needs a word: auto, cpu or default"
                torch="$2"
                shift
                ;;
            --torch=*) torch="${1#--torch=}" ;;
            *) options+=("$1") ;;
        esac
        [[ "$1" != -h && "$1" != --help ]] || help=1
        shift
    done
    [[ "$torch" == auto || "$torch" == cpu || "$torch" == default ]] ||
        fail "--torch $torch: choose of auto, cpu and default"
    venv="${venv_named:-$venv}"
    [[ "$venv" == /* ]] || venv="$PWD/$venv"
    if [[ -n "$help" ]]; then
        # A $PYTHON that cannot serve is no reason not to help.
        (find_python "$extras") 2>/dev/null && find_python "$extras"
        show_usage
        [[ -n "${python:-}" ]] || exit 0
        return
    fi
    find_python "$extras"
    if [[ -z "$python" ]]; then
        install_alone "$extras"
    # The same command again, which goes on where it was stopped, is fine.
    elif [[ "$torch" != auto && "$torch" != "$(cat "$venv/.fairseq-mhe-torch" 2>/dev/null)" ]]; then
        fail "--torch $torch: fairseq-mhe is installed already ($python): remove that environment, or name another with --venv"
    fi
}

show_usage() {
    echo "usage: bash $0 [--venv DIR] [--torch WHICH] [OPTION...]"
    echo
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    echo
    echo "  --venv DIR   the virtual environment, made where it is missing (default: .venv in the repository);"
    echo "               of Python 3.11 or 3.12: \$PYTHON, or python3, python3.12 or python3.11 on the PATH, or by uv"
    echo "  --torch cpu|default   where torch is installed: without CUDA, or as published (default: cpu where no NVIDIA"
    echo "               device is here)"
    echo
    if [[ -n "${python:-}" ]]; then
        echo "All other options go to this command:"
        echo
    else
        echo "fairseq-mhe is not installed yet: the first call without --help installs it, then --help lists all options."
    fi
}

# run WORD...: Python with these words and the options, and with the package of this repository.
run() {
    PYTHONPATH="$repository${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -P "$@" ${options[@]+"${options[@]}"}
}
