"""Runs ``fairseq-mhe`` by ``python -m fairseq_mhe_cli``."""

import sys

from fairseq_mhe_cli import main

sys.exit(main())
