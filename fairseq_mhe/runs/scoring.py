"""Score detokenised text with sacreBLEU: BLEU and chrF with signatures and 95% intervals."""

import math
import re
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json
from fairseq_mhe.prepare.languages import bleu_tokeniser_of, has_spaces
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.prepare.tokenise import tokeniser

Lines = Sequence[str]
#: A hyphen inside a word; as in get_ende_bleu.sh, only the first hyphen of a-b-c matches.
_COMPOUND = re.compile(r"(\S)-(\S)")
#: Number of bootstrap resamples for intervals and p-values, and the seed of their random numbers.
RESAMPLES = 10_000
SEED = 12345
#: Resamples that are drawn at a time, to bound the memory.
_CHUNK = 100
_BLEU_OF_TOKENS = BLEU(tokenize="none", smooth_method="none", force=True)
#: sacreBLEU's tokenisers that need no download, as its signatures name them.
TOKENISERS = ("13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none")


def score(
    hypotheses: Lines,
    references: Lines,
    language: str | None = None,
    tokenise: str | None = None,
) -> Json:
    """Return BLEU and chrF; ``tokenise``: one of `TOKENISERS`, by default the ``language``'s.

    "tokenised" is BLEU as older papers counted it, or None if the language has no spaces.
    """
    tokenised = None
    if language and has_spaces(language):
        tokenised = tokenised_bleu(hypotheses, references, language)
    bleu = BLEU(tokenize=bleu_tokeniser(language, tokenise))
    return {
        "bleu": _score(bleu, hypotheses, references),
        "chrf": _score(CHRF(), hypotheses, references),
        "sentences": len(hypotheses),
        "tokenised": tokenised,
    }


def _score(metric: BLEU | CHRF, hypotheses: Lines, references: Lines) -> Json:
    """Return the score, half the width of its 95% bootstrap interval, and the signature."""
    result = metric.corpus_score(hypotheses, [references])
    signature = str(metric.get_signature())
    sums = resampled_sums(sentence_statistics(metric, hypotheses, references))
    # sacreBLEU's own bootstrap (corpus_score with n_bootstrap) fails if a resample has no match.
    resampled = [metric._compute_score_from_stats(row).score for row in sums.tolist()]
    low, high = interval(np.array(resampled))
    return {
        "score": round(result.score, 4),
        "confidence": round((high - low) / 2, 4),
        "signature": signature,
    }


def sentence_statistics(
    metric: BLEU | CHRF, hypotheses: Lines, references: Lines
) -> np.ndarray:
    """Return the counts of each sentence, whose sums determine the score: (sentences, counts).

    For BLEU the ten counts are both lengths, then matching and all n-grams of orders 1 to 4.
    sacreBLEU has no public function that returns them.
    """
    counts = metric._extract_corpus_statistics(hypotheses, [references])
    return np.array(counts, dtype=float)


def resampled_sums(statistics: np.ndarray) -> np.ndarray:
    """Return the sums over each bootstrap resample of sentences: (RESAMPLES, counts).

    ``statistics``: (sentences, counts). The draws depend on the number of sentences alone, so
    systems that translate the same sentences are compared on the same resamples.
    """
    sentences = len(statistics)
    random = np.random.default_rng(SEED)
    chunks = []
    for start in range(0, RESAMPLES, _CHUNK):
        size = min(_CHUNK, RESAMPLES - start)
        drawn = random.integers(sentences, size=(size, sentences))
        # How often each resample draws each sentence: (size, sentences)
        cells = drawn + sentences * np.arange(size)[:, None]
        times = np.bincount(cells.ravel(), minlength=cells.size)
        chunks.append(times.reshape(cells.shape).astype(float) @ statistics)
    return np.concatenate(chunks)


def interval(resampled: np.ndarray) -> tuple[float, float]:
    """Return the 95% interval of resampled values: it excludes 0 just if `p_value` is below 5%."""
    ordered = np.sort(resampled)
    cut = max(0, math.ceil(0.025 * (len(ordered) + 1)) - 2)
    return float(ordered[cut]), float(ordered[-1 - cut])


def p_value(resampled: np.ndarray) -> float:
    """Return the two-sided p-value of the hypothesis that resampled differences are around 0."""
    beyond = min(np.sum(resampled <= 0), np.sum(resampled >= 0))
    return float(min(1.0, 2 * (beyond + 1) / (len(resampled) + 1)))


def tokenised_bleu(hypotheses: Lines, references: Lines, language: str) -> Json:
    """Return BLEU on Moses' tokens, with hyphenated compounds split and without smoothing.

    Vaswani et al. 2017 scored English-German so (tensor2tensor's get_ende_bleu.sh). It is up to 1.8
    points higher than detokenised BLEU (results/quickstart; on Multi30k within 0.1).
    """
    tokenise = tokeniser("moses", language)

    def split(lines: Lines) -> list[str]:
        return [_COMPOUND.sub(r"\1 ##AT##-##AT## \2", tokenise(line)) for line in lines]

    return _score(_BLEU_OF_TOKENS, split(hypotheses), split(references))


def bleu4(hypotheses: Lines, references: Lines) -> Json:
    """Return BLEU of tokens as fairseq-generate counts it: <unk> in a reference never matches."""
    references = [re.sub(r"(?<!\S)<unk>(?!\S)", "<<unk>>", line) for line in references]
    result = _BLEU_OF_TOKENS.corpus_score(hypotheses, [references])
    line = result.format().replace("BLEU", "BLEU4", 1)
    return {**_score(_BLEU_OF_TOKENS, hypotheses, references), "line": line}


def bleu_tokeniser(language: str | None, chosen: str | None = None) -> str:
    """Return ``chosen`` or the language's tokeniser; UserError if its dictionary is missing."""
    name = chosen or (bleu_tokeniser_of(language) if language else "13a")
    try:
        BLEU(tokenize=name)
    except RuntimeError:
        extra = name.removesuffix("-mecab")
        raise UserError(
            f"BLEU by {name} needs a dictionary: pip install 'sacrebleu[{extra}]', or give "
            "another --bleu-tokenizer, such as char"
        ) from None
    return name


def tokeniser_in(signature: str) -> str:
    """Return the tokeniser that a signature of sacreBLEU names."""
    name = signature.split("|tok:")[1]  # a version may follow the name
    return next(known for known in TOKENISERS if name.startswith(known))


def add_tokeniser(parser: ArgumentParser) -> None:
    help_ = "tokeniser of BLEU (default: by the target language's script: zh, ja-mecab, ko-mecab; "
    help_ += "char for Thai, Lao, Khmer, Burmese and Tibetan; else 13a)"
    parser.add_argument("--bleu-tokenizer", choices=TOKENISERS, help=help_)


def read_aligned(paths: Sequence[Path]) -> list[list[str]]:
    """Return the lines of parallel texts; UserError if their numbers differ."""
    texts = [list(read_lines(path)) for path in paths]
    for path, lines in zip(paths, texts, strict=True):
        if not lines or len(lines) != len(texts[0]):
            raise UserError(
                f"{path} has {len(lines):,} lines, {paths[0]} has {len(texts[0]):,}: score the "
                "same sentences in the same order, one a line"
            )
    return texts


def read_translations(folder: Path) -> dict[str, list[str]]:
    """Return a data set's references, sources, hypotheses and given tokens, as `read_aligned`."""
    names = ["references", "sources", "hypotheses"]
    if (folder / "hypotheses.tokens.txt").exists():
        names += ["references.tokens", "hypotheses.tokens"]
    texts = read_aligned([folder / f"{name}.txt" for name in names])
    return dict(zip(names, texts, strict=True))


def described(scores: Json) -> list[str]:
    """Return a line for each score of scores.json, with its signature."""
    count = f", {scores['sentences']} sentences"
    lines = [f"BLEU {_with_signature(scores['bleu'], count)}"]
    lines.append(f"chrF {_with_signature(scores['chrf'], count)}")
    if bleu := scores.get("tokenised"):
        label = "tokenised, compounds split, as in older papers"
        lines.append(f"{label}: {_with_signature(bleu)}")
    if bleu := scores.get("given_tokens"):
        lines.append(f"on the tokens of the given text: {bleu['line']}")
    return lines


def _with_signature(score: Json, count: str = "") -> str:
    value = f"{score['score']:.2f} ± {score['confidence']:.2f}"
    return f"{value}  ({score['signature']}{count})"
