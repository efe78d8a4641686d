"""The columns of each table."""

from fairseq_mhe.report.table import (
    Column,
    column,
    interval_column,
    p_column,
    seeds_column,
)

#: Translation models; "paper" is the paper's number of the column before it.
TRANSLATION: list[Column] = [
    column("row", "row"),
    column("attention", "attention"),
    column("seeds", "trainings"),
    column("attention parameters", "attention_parameters", ","),
    column("paper (M)", "paper_parameters"),
    column("total parameters", "total_parameters", ","),
    column("KV bytes/token", "kv_bytes_per_token", ","),
    column("BLEU", "bleu", ".2f"),
    column("paper", "paper_bleu", ".1f"),
    column("±", "bleu_confidence", ".2f"),
    column("sd", "bleu_deviation", ".2f"),
    column("tokenised BLEU", "beside_the_paper", ".2f"),
    column("BLEU4", "bleu4", ".2f"),
    column("chrF", "chrf", ".2f"),
    column("valid loss", "valid_loss", ".3f"),
    column("PRR", "prr", ".1f", "-"),
    column("paper", "paper_prr", ".1f"),
    interval_column("PRR 95%", "prr", ".1f"),
    p_column("p_value", 4),
    column("training tokens/s", "tokens_per_second", ",.0f"),
    column("generation sentences/s", "sentences_per_second", ",.1f"),
]
#: The sizes of translation models, if a table has several rows.
SIZES: list[Column] = [
    column("row", "row"),
    column("N", "layers"),
    column("d_m", "width"),
    column("n", "heads"),
    column("d", "head_width"),
    column("P_drop", "dropout", "g"),
    column("#Steps", "updates", ","),
]
#: A benchmark of language models, our numbers beside the paper's.
BENCHMARK: list[Column] = [
    column("attention", "attention"),
    column("attention parameters", "attention_parameters", ",", "-"),
    seeds_column("score", "score", 2),
    column("paper", "paper", "", "-"),
    column("PRR", "prr", ".1f", "-"),
    column("paper", "paper_prr", ".1f", "-"),
    column("PEoP", "peop", ".2f", "-"),
    column("paper", "paper_peop", ".2f", "-"),
]
#: All tasks in one table: these columns, a column for each task, then those of `MEAN`.
TASKS: list[Column] = [
    column("attention", "attention"),
    column("attention parameters", "attention_parameters", ",", "-"),
    column("pre-training, nats", "nats", ".3f", "-"),
]
MEAN: list[Column] = [
    column("mean", "mean", ".2f", "-"),
    column("PRR", "prr", ".1f", "-"),
    column("PEoP", "peop", ".2f", "-"),
]
#: Causal language models.
PERPLEXITY: list[Column] = [
    column("attention", "attention"),
    column("attention parameters", "attention_parameters", ",", "-"),
    column("cache bytes/token", "kv_bytes_per_token", ","),
    seeds_column("nats per subword", "nats", 4),
    seeds_column("perplexity of a subword", "perplexity", 2),
]
#: The variants of a study.
STUDY: list[Column] = [
    column("variant", "variant"),
    column("attention parameters", "attention_parameters", ","),
    column("total parameters", "total_parameters", ","),
    column("KV bytes/token", "kv_bytes_per_token", ","),
    column("valid loss", "loss", ".3f"),
    column("sd", "loss_deviation", ".3f"),
    column("difference", "loss_difference", "+.3f"),
    interval_column("95%", "loss", "+.3f"),
    p_column("loss_p", 3),
    column("BLEU", "bleu", ".2f"),
    column("±", "bleu_confidence", ".2f"),
    column("sd", "bleu_deviation", ".2f"),
    column("PRR", "prr", ".1f"),
    interval_column("95%", "prr", ".1f"),
    column("compared with", "compared_with"),
    column("training tokens/s", "tokens_per_second", ",.0f"),
]
#: fairseq-mhe cost without arguments: all rows and kinds.
ALL_KINDS: list[Column] = [
    column("row", "row"),
    column("attention", "attention"),
    column("attention parameters", "parameters", ","),
    column("published (M)", "published"),
    column("KV bytes/target token", "cache", ",", "-"),
    column("/source token", "cache", ",", "-"),
]
#: fairseq-mhe cost: the parts of one model.
COST: list[Column] = [
    column("part", "part"),
    column("parameters", "parameters", ","),
    column("multiply-adds/source token", "source", ",.0f"),
    column("/target token", "target", ",.0f"),
]
#: The study `serving`: the engines of translate.
SERVING: list[Column] = [
    column("variant", "variant"),
    column("lines/s", "rate", ",.1f"),
    column("vs fairseq", "ratio", ".2f"),
    column("BLEU", "bleu", ".2f"),
    column("equal lines", "equal", ","),
    ("weights, MiB", lambda row: f"{row['bytes'] / 2**20:,.2f}"),
]
#: The study `collaborative-nlu`: these columns, then one for each task.
COLLABORATIVE: list[Column] = [
    column("variant", "variant"),
    column("D", "D", "", "-"),
    column("attention parameters", "attention_parameters", ",", "-"),
]
