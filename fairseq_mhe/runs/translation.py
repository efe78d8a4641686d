"""A trained translation job: its averaged model, its parameters, and whether it is scored."""

import re
import shutil
from dataclasses import dataclass

from fairseq_mhe.checkpoints.average import average_checkpoints, saved_checkpoints
from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common.arguments import option
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path, write_json
from fairseq_mhe.models import counting
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.prepare.languages import bleu_tokeniser_of
from fairseq_mhe.runs import scoring
from fairseq_mhe.runs.job import Job

#: fairseq's file name for the checkpoint at the end of an epoch.
_END_OF_EPOCH = re.compile(r"checkpoint\d+\.pt")


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """Which data set is translated, and how it is scored."""

    subset: str = option("test", "data set to translate and score", metavar="NAME")
    bleu_tokenizer: str | None = option(
        None, scoring.TOKENISER_HELP, choices=scoring.TOKENISERS
    )

    def check(self, data: DataFolder) -> None:
        """Raise UserError if there is no such data set, or the tokeniser is not installed."""
        scoring.bleu_tokeniser(data.languages[1], self.bleu_tokenizer)
        subsets = sorted(data.manifest["lines"])
        if self.subset not in subsets:
            advice = f"give a --subset of {', '.join(subsets)}"
            raise UserError(f"{data.folder} has no {self.subset!r}: {advice}")


def make_model(job: Job) -> None:
    """Make model.pt, the average of a job's last checkpoints, and counts.json; or UserError."""
    training = job.training
    if not training.updates and not job.model.exists():
        with atomic_path(job.model) as temporary:
            shutil.copyfile(job.input_path("start"), temporary)
    if not job.model.exists():
        if not (job.metrics.exists() and job.checkpoints.exists()):
            raise job.unfinished(f"{job.model.name} of all {training.updates:,} updates")
        saved = saved_checkpoints(job.checkpoints)
        # With patience only ends of epochs are averaged; the last update may be within an epoch.
        if training.patience:
            epochs = [path for path in saved if _END_OF_EPOCH.fullmatch(path.name)]
            saved = epochs or saved
        last = saved[-training.average :]  # a short training has fewer
        average_checkpoints(last, job.model)
    if not job.counts.exists():
        model = open_source(job.model).model
        cache = counting.cache_bytes(model)
        counts = {
            "attention_parameters": counting.attention_parameters(model),
            "total_parameters": counting.total_parameters(model),
            "kv_bytes_per_token": cache.per_target_token,
            "kv_bytes_per_source_token": cache.per_source_token,
        }
        write_json(job.counts, counts)


def is_scored(job: Job, options: ScoringOptions) -> bool:
    """Return whether a job has valid scores, by the tokeniser that the options choose."""
    try:
        scores = scoring.read_scores(job.folder / options.subset)
    except UserError:  # missing, damaged, or of other texts
        return False
    target = job.settings["data"]["languages"][1]
    wanted = options.bleu_tokenizer or bleu_tokeniser_of(target)
    return scoring.tokeniser_in(scores["bleu"]["signature"]) == wanted
