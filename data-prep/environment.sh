# Sourced by the scripts beside it: $python becomes the interpreter that fairseq-mhe is installed for.
# shellcheck shell=bash

repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="${PYTHON:-python3}"
if [[ -z "${PYTHON:-}" && -x "$repository/.venv/bin/python" ]]; then
    python="$repository/.venv/bin/python" # where the scripts in scripts/ install it
fi
needed=(fairseq_mhe fairseq torch sacremoses subword_nmt sentencepiece)
if ! "$python" -c 'import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))' \
    "${needed[@]}" 2>/dev/null; then
    echo "$(basename "$0"): error: fairseq-mhe is not installed for $python: install it (cd $repository &&" \
        "pip install -c constraints.txt -e '.[fairseq]'), or name the Python that has it in \$PYTHON" >&2
    exit 2
fi
