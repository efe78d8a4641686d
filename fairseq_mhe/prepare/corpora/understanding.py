"""A task of GLUE, SuperGLUE or SQuAD in the subwords of a language model's text.

Wang et al. 2018 and 2019, Rajpurkar et al. 2016 and 2018.
"""

import argparse
import shutil
from collections import defaultdict
from functools import partial
from pathlib import Path

from fairseq_mhe.common.arguments import at_least, positive
from fairseq_mhe.prepare.config import add_options
from fairseq_mhe.prepare.corpora.known import Downloads
from fairseq_mhe.prepare.download import RemoteFile, extract
from fairseq_mhe.prepare.task_files import official_name
from fairseq_mhe.prepare.task_folder import prepare_task
from fairseq_mhe.prepare.tasks import TASKS, Task
from fairseq_mhe.prepare.text import read_lines, write_lines

# The official addresses publish no checksums; these are those by which others verified the same
# files (Hugging Face's datasets 2.x, TensorFlow Datasets).
_FACEBOOK = "https://dl.fbaipublicfiles.com"
_GLUE, _SUPERGLUE = f"{_FACEBOOK}/glue/data", f"{_FACEBOOK}/glue/superglue/data/v2"
_MRPC = f"{_FACEBOOK}/senteval/senteval_data/msr_paraphrase_train.txt"
_SQUAD = "https://rajpurkar.github.io/SQuAD-explorer/dataset"
_CHECKSUMS = f"""
cola {_GLUE}/CoLA.zip f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff
sst2 {_GLUE}/SST-2.zip d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa
qqp {_GLUE}/QQP-clean.zip 40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0
stsb {_GLUE}/STS-B.zip e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85
mnli {_GLUE}/MNLI.zip e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633
qnli {_GLUE}/QNLIv2.zip e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5
rte {_GLUE}/RTE.zip 6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee
wnli {_GLUE}/WNLI.zip ae0e8e4d16f4d46d4a0a566ec7ecceccfd3fbfaa4a7a4b4e02848c0f2561ac46
boolq {_SUPERGLUE}/BoolQ.zip 853fbe7922f70c59629f06a39e8d9ca440c3d740e760fd3b87a5ddf3dcba2436
cb {_SUPERGLUE}/CB.zip 8d641383298d54554066ba1c93f56ae7410af75df621b90c63028806bbbbb535
copa {_SUPERGLUE}/COPA.zip 405906cddac74bc1e1ce8220f1107d1025b66a25ef10149d91b10bb30651125f
multirc {_SUPERGLUE}/MultiRC.zip b3cd440856e72eb166b2edcd37b798455f1ebd51f2c3de64c0c2a4e1971d2737
record {_SUPERGLUE}/ReCoRD.zip 30c7b651ab21b8bf8fab986495cd1084333010e040548f861b839eec0044ac18
superglue_rte {_SUPERGLUE}/RTE.zip 6310aab3f000424c9d0318a1ff20692e07c7f4aa15e8f17a5972ea0a35c398b9
wic {_SUPERGLUE}/WiC.zip ee7e67f4ae9eafbf533780faa198e62167f3cda54256cdf261877be3c0e90900
wsc {_SUPERGLUE}/WSC.zip 2ed6dfa94556b4a128ff0441efe365b2e883124e7e6aa00fb8d3a6cb1fd520a9
mrpc {_MRPC} 60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89
mrpc {_GLUE}/mrpc_dev_ids.tsv 971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7
squad1 {_SQUAD}/train-v1.1.json 3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955
squad1 {_SQUAD}/dev-v1.1.json 95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9
squad2 {_SQUAD}/train-v2.0.json 68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002
squad2 {_SQUAD}/dev-v2.0.json 80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8
"""


#: Task -> its published files.
FILES: dict[str, list[RemoteFile]] = defaultdict(list)
for _task, _url, _checksum in map(str.split, _CHECKSUMS.strip().split("\n")):
    FILES[_task].append(RemoteFile(_url, sha256=_checksum))


def obtain_task(task: Task, downloads: Downloads) -> Path:
    """Download a task's official files; returns their folder, raises UserError as `unpack`."""
    if task.name == "mrpc":
        unpack = _split_mrpc
    else:
        unpack = _copy if task.suite == "squad" else partial(_extract, task)
    downloads.unpack(FILES[task.name], unpack)
    return downloads.original


def _copy(paths: list[Path], work: Path) -> None:
    for path in paths:
        shutil.copy(path, work)


def _extract(task: Task, archives: list[Path], work: Path) -> None:
    names = [official_name(task, split) for split in ("train", *task.scored)]
    extract(archives[0], [f"{task.folder}/{name}" for name in names], work)


def _split_mrpc(paths: list[Path], work: Path) -> None:
    """Split MRPC's file into GLUE's train and dev; the second file names the pairs of dev."""
    held_out = set(read_lines(paths[1]))
    header, *rows = read_lines(paths[0])
    parts = {"train": [header], "dev": [header]}
    for row in rows:
        pair = "\t".join(row.split("\t")[1:3])
        parts["dev" if pair in held_out else "train"].append(row)
    for split, lines in parts.items():
        write_lines(work / f"{split}.tsv", lines)


def add_arguments(parser: argparse.ArgumentParser, suite: str) -> None:
    """The script's options."""
    names = [task.name for task in TASKS.values() if task.suite == suite]
    add = parser.add_argument
    add("task", choices=names, metavar="TASK", help=", ".join(names))
    help = (
        "unpacked official files, as CoLA/train.tsv, train.tsv or cola.train.tsv.gz; nothing "
        "is downloaded"
    )
    add("--folder", type=Path, help=help)
    help = "the language model's data folder"
    add("--text", type=Path, required=True, metavar="DATA", help=help)
    add("--out", type=Path, metavar="DIR", help="new data folder (default: runs/TASK-data)")
    help = (
        "longest example in subwords: at most the model's positions (default: %(default)s)"
    )
    block = 384 if suite == "squad" else 512
    add("--block", type=at_least(8), default=block, metavar="N", help=help)
    add_options(parser, Downloads)
    if suite == "squad":
        help = "subwords between two windows over a passage (default: a third of --block)"
        add("--stride", type=positive, metavar="N", help=help)


def run(args: argparse.Namespace) -> None:
    """Prepare the task."""
    task, folder = TASKS[args.task], args.folder
    out = args.out or Path(f"runs/{task.name}-data")
    if folder is None:
        folder = obtain_task(task, Downloads(out=out, mirror=args.mirror))
    stride = getattr(args, "stride", None)
    print(prepare_task(task, folder, args.text, out, args.block, stride))
