"""Score detokenised text with sacreBLEU: BLEU and chrF with signatures and 95% intervals."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json, read_json, sha256, write_json
from fairseq_mhe.prepare.languages import bleu_tokeniser_of, has_spaces
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.prepare.text_processing import TextProcessing
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
TOKENISER_HELP = (
    "tokeniser of BLEU (default: by the target language's script: zh, ja-mecab, ko-mecab; char for "
    "Thai, Lao, Khmer, Burmese and Tibetan; else 13a)"
)


def score(
    hypotheses: Lines,
    references: Lines,
    language: str | None = None,
    tokenise: str | None = None,
) -> Json:
    """Return BLEU and chrF; ``tokenise``: one of `TOKENISERS`, by default the ``language``'s.

    "tokenised" is BLEU as older papers counted it, or None if the language has no spaces. If all
    text is lower-cased, the signatures say case:lc.
    """
    tokenised = None
    if language and has_spaces(language):
        tokenised = tokenised_bleu(hypotheses, references, language)
    lowercase = _is_lower_cased(hypotheses) and _is_lower_cased(references)
    bleu = BLEU(tokenize=bleu_tokeniser(language, tokenise), lowercase=lowercase)
    return {
        "bleu": _score(bleu, hypotheses, references),
        "chrf": _score(CHRF(lowercase=lowercase), hypotheses, references),
        "sentences": len(hypotheses),
        "tokenised": tokenised,
    }


def _is_lower_cased(lines: Lines) -> bool:
    """Return whether no letter is upper case, though some letters have an upper case."""
    text = "\n".join(lines)
    return text == text.lower() != text.upper()


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


def score_folder(folder: Path, text: TextProcessing, tokenise: str | None = None) -> None:
    """Score a data set's translations; write scores.json with checksums of the scored texts."""
    texts = read_translations(folder)
    scores = score(texts["hypotheses"], texts["references"], text.target_lang, tokenise)
    if "hypotheses.tokens" in texts:
        tokens = texts["hypotheses.tokens"], texts["references.tokens"]
        scores["given_tokens"] = bleu4(*tokens)
    scores["sha256"] = _checksums(folder)
    write_json(folder / "scores.json", scores)


def _checksums(folder: Path) -> dict[str, str]:
    """Return the name and SHA-256 of each text that determines the scores of a data set."""
    names = ["hypotheses.txt", "references.txt"]
    if (folder / "hypotheses.tokens.txt").exists():
        names += ["hypotheses.tokens.txt", "references.tokens.txt"]
    return {name: sha256(folder / name) for name in names}


def read_scores(folder: Path) -> Json:
    """Return the scores.json of a data set.

    Raises UserError if it is missing, if a score is not a number from 0 to 100, or if the texts
    are not those that were scored.
    """
    path = folder / "scores.json"
    advice = (
        f"score it again: fairseq-mhe evaluate {folder.parent} --subset {folder.name}"
    )
    if not path.is_file():
        raise UserError(f"{folder.parent} has no scores of {folder.name}; {advice}")
    scores = read_json(path)
    metrics = {name: scores[name] for name in ("bleu", "chrf")}
    for name in ("tokenised", "given_tokens"):
        if scores.get(name):
            metrics[name] = scores[name]
    for name, metric in metrics.items():
        value: Any = metric.get("score") if isinstance(metric, dict) else metric
        if type(value) not in (int, float) or not 0 <= value <= 100:
            problem = f"the score {name} is {value!r}, not a number from 0 to 100"
            raise UserError(f"{path}: {problem}; {advice}")
    if not isinstance(scores.get("sha256"), dict):
        raise UserError(f"{path} does not name the texts that it scores; {advice}")
    for name, checksum in _checksums(folder).items():
        if scores["sha256"].get(name) != checksum:
            raise UserError(f"{folder / name} has changed since it was scored; {advice}")
    return scores


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
