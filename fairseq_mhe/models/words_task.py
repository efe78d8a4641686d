"""``--task sentence_prediction_of_words``: fairseq's sentence_prediction with two spans marked."""

from pathlib import Path
from typing import Any

from fairseq.data import RawLabelDataset
from fairseq.tasks import register_task
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask


@register_task("sentence_prediction_of_words", dataclass=SentencePredictionConfig)
class WordsPredictionTask(SentencePredictionTask):
    """The model is given ``spans``: first and last token of both (B, 4), of DATA/spans."""

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> Any:
        """Called by fairseq: its data set, and the spans beside the tokens."""
        dataset = super().load_dataset(split, combine, **kwargs)
        path = Path(self.cfg.data) / "spans" / f"{split}.spans"
        lines = path.read_text(encoding="utf-8").splitlines()
        spans = [[int(number) for number in line.split()] for line in lines]
        nested = getattr(dataset, "dataset", dataset)  # under the one that shuffles
        nested.defn["net_input.spans"] = RawLabelDataset(spans)
        return dataset
