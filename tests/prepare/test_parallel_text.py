"""Parallel text becomes a data folder; interruptions do not change its files."""

import contextlib
import gzip
import lzma
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare import parallel_text, steps
from fairseq_mhe.prepare.cleaning import clean_pairs, median_ratio
from fairseq_mhe.prepare.config import SPLITS, PrepareConfig
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.prepare.manifest import Manifest, file_hashes, read_manifest
from fairseq_mhe.prepare.parallel_text import prepare
from tests.fixtures.refusals import refuses
from tests.fixtures.text import Pairs, sides
from tests.prepare.conftest import write_parallel

MOSES = PrepareConfig(source_lang="en", target_lang="de", tokenizer="moses", max_ratio=1.5)


@pytest.mark.parametrize(
    ("pair", "outcome"),
    [
        (("a b c", "d e"), "kept"),
        (("a b c d", "d e"), "ratio"),
        (("d e", "a b c d"), "ratio"),
        (("a", " \t "), "empty"),
        (("\u2581", "\u2581 "), "empty"),
        (("a " * 250, "b " * 250), "kept"),
        (("a " * 251, "b " * 250), "too_long"),
        (("a " * 10_000, "b"), "too_long"),
        (("x" * 1000, "y" * 1000), "kept"),
        (("x" * 1001, "y" * 1000), "too_long"),
    ],
)
def test_each_pair_is_kept_or_dropped_for_its_reason(pair: tuple[str, str], outcome: str) -> None:
    rows, outcomes = clean_pairs([pair], MOSES)
    assert outcomes == {outcome: 1}
    assert list(map(len, rows)) == [4] * (outcome == "kept")
    for split in ("valid", "test"):
        assert clean_pairs([pair], MOSES, split)[1] == {"kept": 1}


def test_length_is_counted_in_tokens_of_the_tokeniser() -> None:
    """The pair has two words, but four tokens."""
    pair = ("Yes, no.", "Ja, nein.")
    assert clean_pairs([pair], replace(MOSES, max_tokens=3))[1] == {"too_long": 1}
    rows, _ = clean_pairs([pair], replace(MOSES, max_tokens=4))
    assert rows == [(*pair, "Yes , no .", "Ja , nein .")]


def test_without_a_tokeniser_length_is_counted_in_characters() -> None:
    """Ratios count relative to the usual one: Chinese has far fewer characters than English."""
    config = replace(MOSES, tokenizer="none", target_lang="zh", max_tokens=20)
    long = "The weather is fine in the mountains today"
    pairs = [(long, "今天山里天气很好"), ("Yes, not now", "是")]
    ratio = median_ratio([*pairs, *[("", "今"), ("a", "")], pairs[0]])
    assert (ratio, median_ratio([("a", "")])) == (pytest.approx(8 / 42), 1)
    assert clean_pairs(pairs, config, "train", ratio)[1] == {"kept": 2}
    wrong = [(long, "今"), ("x" * 161, "今" * 40), ("x" * 160, "今" * 81)]
    assert clean_pairs(wrong, config, "train", ratio)[1] == {"ratio": 1, "too_long": 2}
    german, pair = replace(config, target_lang="de"), ("word " * 30, "Wort " * 30)
    for split in SPLITS:
        assert clean_pairs([pair], german, split)[1] == {"kept": 1}


def snapshot(data: Path) -> dict[str, str]:
    """Return file -> SHA-256 of everything in the folder but the logs, which no step records."""
    files = (path for path in data.rglob("*") if path.is_file() and path.parent.name != "logs")
    return {str(path.relative_to(data)): sha256(path) for path in files}


def times(data: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in data.rglob("*") if path.is_file()}


def raw(data: Path, split: str, lang: str = "de") -> list[str]:
    return (data / "raw" / f"{split}.{lang}").read_text(encoding="utf-8").splitlines()


def test_the_manifest_has_the_hash_of_every_file(prepared: Path) -> None:
    manifest = read_manifest(prepared)
    assert manifest["lines"] == {"train": 300, "valid": 30, "test": 30}
    for split, lines in manifest["lines"].items():
        for lang in ("en", "de"):
            for folder in ("raw", "subword"):
                text = (prepared / folder / f"{split}.{lang}").read_text(encoding="utf-8")
                assert text.count("\n") == lines
            assert (prepared / "bin" / f"{split}.en-de.{lang}.idx").exists()
    assert (manifest["state"], manifest["source"]["corpus"]) == ("complete", "home-assistant")
    text = open_data(prepared).processing
    moses = text.tokenizer == "moses"
    assert (prepared / "tokenised").exists() == moses == (text.subword == "bpe")
    files = snapshot(prepared)
    for name in (".lock", "manifest.json"):
        del files[name]
    assert file_hashes(manifest) == files
    assert str(prepared) not in (prepared / "manifest.json").read_text()


def test_interrupted_preparation_resumes_to_equal_files(
    config: PrepareConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers, sizes of blocks, time and folder do not change the files, either."""
    whole = snapshot(prepare(config))
    monkeypatch.setattr(parallel_text, "CHUNK", 7)
    monkeypatch.setattr("fairseq_mhe.prepare.subword.COUNT_BYTES", 1000)
    monkeypatch.setattr(steps, "SEGMENT_BYTES", 1000)
    finish = Manifest._finish
    config = replace(config, out=tmp_path / "other, with a comma", workers=2)
    before: dict[str, int] = {}
    for last in ("clean", "learn", "segment", "binarise", "none"):

        def finish_until(manifest: Manifest, step: str, *rest: Any, last: str = last) -> None:
            if step == last:
                raise KeyboardInterrupt
            finish(manifest, step, *rest)

        monkeypatch.setattr(Manifest, "_finish", finish_until)
        with contextlib.nullcontext() if last == "none" else pytest.raises(KeyboardInterrupt):
            prepare(config)
        assert before.items() <= times(config.out).items()  # no file is written again
        before = times(config.out)
        before = {name: before[name] for name in before if not name.endswith((".json", ".log"))}
    assert snapshot(config.out) == whole
    before = times(config.out)
    assert times(prepare(config)) == before


def test_other_options_and_inputs_repeat_dependent_steps(config: PrepareConfig) -> None:
    before = snapshot(prepare(config))
    after = snapshot(prepare(replace(config, vocab_size=50)))
    changed = {name for name in before if before[name] != after.get(name)}
    assert "raw/train.en" not in changed
    assert {"subword/bpe.codes", "subword/train.en", "bin/dict.en.txt"} <= changed
    assert snapshot(prepare(config)) == before
    lines = raw(config.out, "train")
    for lang in config.langs:
        with Path(f"{config.train[0]}.{lang}").open("a", encoding="utf-8") as stream:
            stream.write("one more line\n")
    assert raw(prepare(config), "train") == [*lines, "one more line"]


def test_each_option_of_cleaning_repeats_it(config: PrepareConfig) -> None:
    """In one folder, each option alone gives other files than without it."""
    config = replace(config, valid=None, hold_out=9)
    changes: dict[str, Any] = {"tokenizer": "none", "max_tokens": 15, "max_ratio": 1.3}
    changes |= {"punctuation": True, "lowercase": True, "hold_out": 7}
    for name, value in changes.items():
        files = []
        for options in (config.checked(), replace(config, **{name: value}).checked()):
            prepare(options)
            files.append(read_manifest(config.out)["steps"]["clean"]["files"])
        assert files[0] != files[1], name


def test_dropped_pairs_are_counted_then_warned_of_then_refused(
    config: PrepareConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, unlike = ("a good pair", "ein gutes Paar"), ("one two three four", "eins")

    def text(unlike_ones: int) -> PrepareConfig:
        pairs = [good] * (99 - unlike_ones) + [unlike] * unlike_ones + [("", "leer")]
        return replace(config, train=(write_parallel(tmp_path / f"{unlike_ones}", pairs),))

    prepare(text(5))
    assert "train: 94 of 100 pairs kept, 1 empty, 5 of unlike" in capsys.readouterr().err
    prepare(text(30))
    assert "warning: 31% dropped: train: 69 of 100 pairs" in capsys.readouterr().err
    with refuses("61% of train", "--max-dropped"):
        prepare(replace(text(60), out=tmp_path / "none"))
    assert os.listdir(tmp_path / "none") == [".lock"]
    prepare(replace(text(60), max_dropped=61))
    assert read_manifest(config.out)["lines"]["train"] == 39


def test_subwords_are_learnt_from_train_only(config: PrepareConfig, tmp_path: Path) -> None:
    write_parallel(tmp_path / "other", [("zzzz yyyy", "xxxx")] * 50)
    model = prepare(config) / "subword" / "bpe.codes"
    learnt = model.stat().st_mtime_ns
    prepare(replace(config, test=tmp_path / "other"))
    assert model.stat().st_mtime_ns == learnt  # the step did not run again


@pytest.mark.parametrize(
    ("content", "named"), [(b"caf\xe9\n" * 300, "train.en, line 1"), (b"\n" * 300, "300 empty")]
)
def test_invalid_text_leaves_no_files(config: PrepareConfig, content: bytes, named: str) -> None:
    Path(f"{config.train[0]}.en").write_bytes(content)
    with refuses(named):
        prepare(config)
    assert not config.out.exists() or os.listdir(config.out) == [".lock"]


def test_hold_out_takes_missing_splits_from_clean_train(
    config: PrepareConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel_text, "CHUNK", 16)
    config = replace(config, max_ratio=None)
    whole = prepare(replace(config, out=tmp_path / "whole"))
    held = prepare(replace(config, valid=None, test=None, hold_out=7))
    train = raw(whole, "train")
    assert raw(held, "valid") == train[6::7]
    assert raw(held, "test") == train[0::7]
    kept = [line for number, line in enumerate(train, start=1) if number % 7 > 1]
    assert raw(held, "train") == kept
    counts = read_manifest(held)["steps"]["clean"]["counts"]
    assert counts["train"]["held_out"] == counts["valid"]["kept"] + counts["test"]["kept"]
    for name, other, lines in (("valid", "test", train[6::7]), ("test", "valid", train[0::7])):
        only = prepare(replace(config, **{name: None}, hold_out=7, out=tmp_path / name))
        assert (raw(only, name), raw(only, other)) == (lines, raw(whole, other))
    few = write_parallel(tmp_path / "few", [("one pair", "ein Paar")] * 5)
    with refuses("--hold-out 7"):
        prepare(replace(config, train=(few,), valid=None, hold_out=7, out=tmp_path / "few"))


def test_pairs_of_valid_and_test_that_are_also_in_train_are_warned_of(
    config: PrepareConfig, corpus: dict[str, Pairs], capsys: pytest.CaptureFixture[str]
) -> None:
    """Both sides count, as in raw/; a held-out pair is in train before or after it."""
    pairs, (source, target) = corpus["train"][:60], corpus["train"][7]
    write_parallel(config.train[0], [*pairs, *pairs[30:]])
    others = [(f"{source} ", target), (source, "other"), *corpus["valid"][:8]]
    write_parallel(config.valid, [*pairs[7:9] * 2, *others])
    held_out = replace(config, valid=None, test=None, hold_out=7)
    for options, expected in ((config, [5, 0]), (held_out, [8, 8])):
        data = prepare(replace(options, max_ratio=None))
        warnings, counts = capsys.readouterr().err, read_manifest(data)["steps"]["clean"]["counts"]
        train, *others = (list(zip(raw(data, x, "en"), raw(data, x), strict=True)) for x in SPLITS)
        for split, rows, shared in zip(SPLITS[1:], others, expected, strict=True):
            assert sum(row in train for row in rows) == counts[split]["in_train"] == shared
            warning = f"warning: {shared} of {len(rows)} pairs of {split} are also in train: its"
            assert (warning in warnings) == (shared > 0)


def test_joined_tables_archives_and_compressed_files_equal_plain_files(
    config: PrepareConfig, corpus: dict[str, Pairs], tmp_path: Path
) -> None:
    pairs = corpus["train"][:300]
    table, zipped = tmp_path / "first.tsv.xz", tmp_path / "second.zip"
    table.write_bytes(lzma.compress("\n".join(map("\t".join, pairs[:100])).encode()))
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("README", "OPUS")
        for name, text in sides("OPUS.de-en", pairs[100:200]).items():
            archive.writestr(name, text)
    for name, text in sides(tmp_path / "rest", pairs[200:]).items():
        Path(f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    train = (table, zipped, tmp_path / "rest")
    mixed = snapshot(prepare(replace(config, train=train, out=tmp_path / "mixed")))
    for name, checksum in snapshot(prepare(config)).items():
        assert name == "manifest.json" or mixed[name] == checksum


def test_another_text_of_the_same_archive_is_prepared_anew(
    config: PrepareConfig, corpus: dict[str, Pairs], tmp_path: Path
) -> None:
    """Else the folder would keep the first text without a word."""
    texts = {"first": corpus["train"][:150], "second": corpus["train"][150:300]}
    archive = tmp_path / "texts.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for prefix, pairs in texts.items():
            for name, text in sides(prefix, pairs).items():
                zipped.writestr(name, text)
    for prefix, pairs in texts.items():
        data = prepare(replace(config, train=(archive / prefix,), max_ratio=None))
        assert raw(data, "train", "en") == [source for source, _ in pairs]


@pytest.mark.parametrize("tokenizer", ["moses", "none"])
def test_lowercase_changes_raw_and_punctuation_does_not(
    config: PrepareConfig, tmp_path: Path, tokenizer: str
) -> None:
    pair = ("\u201cYES\u201d \u2013 Mr. Smith", "\u201eJA\u201c \u2013 Herr Schmidt")
    write_parallel(tmp_path / "odd", [pair])
    changes: dict[str, Any] = {"punctuation": True, "lowercase": True, "max_ratio": None}
    test = tmp_path / "odd"
    data = prepare(replace(config, test=test, tokenizer=tokenizer, **changes))
    assert raw(data, "test") == ["\u201eja\u201c \u2013 herr schmidt"]
    seen = (data / "tokenised" / "test.en").read_text(encoding="utf-8")
    assert seen == {"moses": '" yes " - mr. smith\n', "none": '"yes" - mr. smith\n'}[tokenizer]
