"""Draw the pictures of results/ again from the JSON and Markdown beside them.

python scripts/redraw.py results/*/*.png

Kinds of attention that no longer exist are left out. `scripts/recompute.py --picture`
draws pictures of tables whose runs are kept, which also have learning curves.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.files import Json, read_json
from fairseq_mhe.report import plots
from fairseq_mhe.report.plots import mean_point
from fairseq_mhe.report.table import seed_words


def main(paths: Sequence[str]) -> None:
    """Draw each picture for which there are numbers in a known form."""
    for path in map(Path, paths):
        data = path.with_suffix(".json")
        if path.name == "picture.png":
            data = path.with_name("table.json")
        content = read_json(data, object)
        title = data.with_suffix(".md").read_text("utf-8").splitlines()[0].removeprefix("# ")
        title = title.removesuffix(" (unfinished)")
        if draw(content, path, title):
            print(path)
        else:
            print(f"{path}: left as it is", file=sys.stderr)


def draw(content: Any, path: Path, title: str) -> bool:
    """Draw the picture of one file's content; return False if its form is not known."""
    if isinstance(content, list):
        rows = [row for row in content if row["attention"] in KINDS]
        if "seed" not in title:
            title += f"; {seed_words(rows[0]['seeds'])}"
        plots.plot_translation(rows, {}, path, title)
    elif "variants" in content:
        draw_study(content["variants"], path, title)
    elif "summaries" in content:
        draw_uptraining(content["summaries"], path, title)
    elif set(content) <= set(KINDS):
        draw_language_models(content, path, title)
    else:
        return False
    return True


def draw_study(variants: Sequence[Json], path: Path, title: str) -> None:
    """Draw the variants of a study, and the costs of those that were trained."""
    losses, bleus, costs = [], [], []
    for variant in variants:
        attention = variant["attention"]
        kinds = {attention} if isinstance(attention, str) else set(attention.values())
        if not kinds <= set(KINDS):
            continue
        kind = kinds.pop() if len(kinds) == 1 else "several kinds"
        name = variant.get("variant") or f"{attention}, {variant['precision']}"
        group = variant.get("question", "")
        if variant.get("losses"):
            losses.append(mean_point(name, variant["losses"], kind, group))
        bleus.append(mean_point(name, variant["bleus"], kind, group))
        costs.append(variant)
    groups = {point.group for point in bleus} - {""}
    several = any(point.seeds for point in bleus)
    bars = "\nbars: sd over seeds; ticks: seeds" if several else ""
    panels = [(losses, f"validation loss (bits per subword){bars}", ".3f")] if losses else []
    panels.append((bleus, f"BLEU{bars}", ".2f"))
    height = max(3.0, 0.2 * (len(bleus) + len(groups)) + 1.4)
    with plots.picture(path, title, height) as figure:
        all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (points, label, form) in zip(all_axes, panels, strict=True):
            plots.draw_list(axes, points, label, form, named=axes is all_axes[0])
    caches = {variant.get("kv_bytes_per_token") for variant in costs}
    if losses and len(caches) > 2:
        path = path.with_name(f"{path.stem}-costs.png")
        cache = ("kv_bytes_per_token",)  # the parameters are nearly equal
        plots.plot_costs(losses, costs, path, title, costs=cache)


def draw_uptraining(summaries: Sequence[Json], path: Path, title: str) -> None:
    """Draw the BLEU of each kind by the way in which it was trained."""
    points = []
    for way in dict.fromkeys(summary["way"] for summary in summaries):
        for summary in summaries:
            if summary["way"] == way:
                kind = summary["attention"]
                points.append(mean_point(kind, summary["bleus"], kind, way))
    with plots.picture(path, title, 0.2 * len(points) + 2.0) as figure:
        label = "BLEU (bars: sd over seeds; ticks: seeds)"
        plots.draw_list(figure.subplots(), points, label, ".2f")


def draw_language_models(content: Json, path: Path, title: str) -> None:
    """Draw the scores of tasks, or the loss of causal models; the table has the other numbers."""
    markdown = path.with_suffix(".md").read_text("utf-8")
    if isinstance(next(iter(content.values())), dict):
        rows = [{"attention": kind, "scores": scores} for kind, scores in content.items()]
        tasks = list(rows[0]["scores"])
        (line,) = re.findall(r"\| always the commonest label +\|(.*)\|", markdown)
        numbers = [cell.strip() for cell in line.split("|")][2 : 2 + len(tasks)]
        commonest = {}
        for task, number in zip(tasks, numbers, strict=True):
            commonest[task] = None if number == "-" else float(number)
        plots.plot_tasks(rows, path, title, commonest)
        return
    rows = []
    for kind, nats in content.items():
        found = re.search(rf"\| {kind} +\| +([\d,]+) \| +([\d,]+) \|", markdown)
        parameters, cache = (int(number.replace(",", "")) for number in found.groups())
        row = {"attention": kind, "nats": nats}
        rows.append({**row, "attention_parameters": parameters, "kv_bytes_per_token": cache})
    plots.plot_perplexity(rows, path, title)


if __name__ == "__main__":
    main(sys.argv[1:])
