"""Detokenised text against references with sacreBLEU: scores with signatures and 95% intervals."""

import re
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import _bootstrap_resample

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json
from fairseq_mhe.prepare.languages import bleu_tokeniser_of, has_spaces
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.prepare.tokenise import tokeniser

Lines = Sequence[str]
#: A hyphen inside a word; of a-b-c, as in Perl, the first alone.
_COMPOUND = re.compile(r"(\S)-(\S)")
#: Bootstrap resamples, for confidence intervals and p-values, and their random seed, sacreBLEU's.
RESAMPLES = 1000
SEED = 12345
#: sacreBLEU's tokenisers, of those that need no download: its signatures name them.
TOKENISERS = ("13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none")


def score(
    hypotheses: Lines,
    references: Lines,
    language: str | None = None,
    tokenise: str | None = None,
) -> Json:
    """Scores by sacreBLEU; BLEU's tokens are by ``tokenise``, of `TOKENISERS`, or the ``language``.

    "tokenised" is as the older literature counted BLEU; None where Moses' tokens are no words.
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
    result = metric.corpus_score(hypotheses, [references])
    signature = str(metric.get_signature())
    # sacreBLEU's own estimate_ci fails where a resample has no match: it mixes types of numbers.
    statistics = metric._extract_corpus_statistics(hypotheses, [references])
    _, resampled = _bootstrap_resample(statistics, metric, RESAMPLES)
    ordered = sorted(float(each.score) for each in resampled)
    cut = RESAMPLES // 40
    confidence = round((ordered[-cut - 1] - ordered[cut]) / 2, 4)
    return {
        "score": round(result.score, 4),
        "confidence": confidence,
        "signature": signature,
    }


def tokenised_bleu(hypotheses: Lines, references: Lines, language: str) -> Json:
    """BLEU on Moses' tokens with hyphenated compounds split, without smoothing.

    So Vaswani et al. 2017 scored English-German (tensor2tensor's get_ende_bleu.sh); it is about a
    point higher than detokenised BLEU.
    """
    tokenise = tokeniser("moses", language)

    def split(lines: Lines) -> list[str]:
        return [_COMPOUND.sub(r"\1 ##AT##-##AT## \2", tokenise(line)) for line in lines]

    return _score(_bleu_of_tokens(), split(hypotheses), split(references))


def _bleu_of_tokens() -> BLEU:
    return BLEU(tokenize="none", smooth_method="none", force=True)


def bleu4(hypotheses: Lines, references: Lines) -> Json:
    """BLEU of tokens as fairseq-generate counts it: <unk> in a reference matches nothing."""
    references = [re.sub(r"(?<!\S)<unk>(?!\S)", "<<unk>>", line) for line in references]
    bleu = _bleu_of_tokens()
    parts = bleu.corpus_score(hypotheses, [references])
    line = parts.format().replace("BLEU", "BLEU4", 1)
    return {**_score(bleu, hypotheses, references), "line": line}


def bleu_tokeniser(language: str | None, chosen: str | None = None) -> str:
    """``chosen``, or the language's; UserError where its dictionary is missing."""
    name = chosen or (bleu_tokeniser_of(language) if language else "13a")
    try:
        BLEU(tokenize=name)
    except RuntimeError:
        extra = name.removesuffix("-mecab")
        raise UserError(
            f"BLEU by {name} needs a dictionary: pip install 'sacrebleu[{extra}]', or give "
            "another --bleu-tokenizer (char, say)"
        ) from None
    return name


def tokeniser_in(signature: str) -> str:
    """The tokeniser that sacreBLEU's signature names."""
    name = signature.split("|tok:")[1]  # which may go on with its version
    return next(known for known in TOKENISERS if name.startswith(known))


def add_tokeniser(parser: ArgumentParser) -> None:
    help_ = "tokeniser of BLEU (default: by the target language's script: zh, ja-mecab, ko-mecab; "
    help_ += "char for Thai, Lao, Khmer, Burmese and Tibetan; else 13a)"
    parser.add_argument("--bleu-tokenizer", choices=TOKENISERS, help=help_)


def read_aligned(paths: Sequence[Path], advice: str) -> list[list[str]]:
    """The lines of texts of equal length; raises UserError, with ``advice``, for others."""
    texts = [list(read_lines(path)) for path in paths]
    for path, lines in zip(paths, texts, strict=True):
        if not lines or len(lines) != len(texts[0]):
            raise UserError(
                f"{path} has {len(lines):,} lines, {paths[0]} has {len(texts[0]):,}: {advice}"
            )
    return texts


def read_translations(folder: Path) -> dict[str, list[str]]:
    """References, sources, hypotheses and given tokens of a data set."""
    names = ["references", "sources", "hypotheses"]
    if (folder / "hypotheses.tokens.txt").exists():
        names += ["references.tokens", "hypotheses.tokens"]
    advice = f"remove {folder} and evaluate the run again, which translates anew"
    texts = read_aligned([folder / f"{name}.txt" for name in names], advice)
    return dict(zip(names, texts, strict=True))


def described(scores: Json) -> list[str]:
    """A line for each score of scores.json, with what it means."""
    count = f", {scores['sentences']} sentences"
    lines = [f"BLEU {_described(scores['bleu'], count)}"]
    lines.append(f"chrF {_described(scores['chrf'], count)}")
    if older := scores.get("tokenised"):
        lines.append(
            f"tokenised, compounds split, as in older papers: {_described(older)}"
        )
    if given := scores.get("given_tokens"):
        lines.append(f"on the tokens of the given text: {given['line']}")
    return lines


def _described(score: Json, more: str = "") -> str:
    return (
        f"{score['score']:.2f} ± {score['confidence']:.2f}  ({score['signature']}{more})"
    )
