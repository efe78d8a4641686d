"""fairseq's tasks with made-up words, to build and measure models without data."""

import copy
import functools
from typing import Any

from fairseq.data import Dictionary
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask


@functools.lru_cache(maxsize=8)  # building a large one takes as long as `build_on_meta`
def make_dictionary(words: int) -> Dictionary:
    """Return a cached dictionary of made-up words; its size counts the four special symbols."""
    dictionary = Dictionary()
    for index in range(words - len(dictionary)):
        dictionary.add_symbol(f"w{index}")
    return dictionary


def make_task(
    source: int, target: int | None = None, config: Any = None
) -> TranslationTask:
    """Return a translation task; without ``target`` both sides share one size of dictionary."""
    dictionaries = make_dictionary(source), make_dictionary(target or source)
    return TranslationTask(config or TranslationConfig(), *dictionaries)


def make_masked_task(words: int) -> MaskedLMTask:
    """Return RoBERTa's task; ``words`` counts its <mask>, too."""
    dictionary = copy.deepcopy(make_dictionary(words - 1))
    return MaskedLMTask(MaskedLMConfig(), dictionary)  # adds <mask> to the dictionary


def make_causal_task(words: int) -> LanguageModelingTask:
    """Return the task of a causal language model."""
    return LanguageModelingTask(LanguageModelingConfig(), make_dictionary(words))
