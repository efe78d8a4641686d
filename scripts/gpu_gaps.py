"""mha and mhe_mul by graphs in turns; what of an update the GPU computes."""
import os, time, itertools, statistics, warnings
warnings.simplefilter("ignore")
from argparse import Namespace
from pathlib import Path
import torch
from fairseq_mhe.bench import models
from fairseq.trainer import Trainer
import fairseq_mhe
made = {}
for kind in ("mha", "mhe_mul"):
    s = Namespace(row="base", device="cuda", seed=1, vocab_size=16384)
    cfg, task, model = models.build(kind, s, "bf16", ["--max-tokens", "4096", "--save-dir", os.devnull, "--cuda-graphs"])
    tr = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    b = list(itertools.islice(models.real_batches(Path(os.environ["DATA"]), cfg.task, 16384, 4096), 30))
    for x in [*b, *b]: tr.train_step([x], raise_oom=True)
    made[kind] = tr, b
for r in range(4):
    for kind, (tr, b) in made.items():
        torch.cuda.synchronize(); t = time.perf_counter()
        for x in b: tr.train_step([x], raise_oom=True)
        torch.cuda.synchronize(); print(kind, "%.2f ms" % ((time.perf_counter() - t) / len(b) * 1e3), flush=True)
from torch.profiler import profile, ProfilerActivity as A
for kind, (tr, b) in made.items():
    with profile(activities=[A.CUDA]) as p:
        torch.cuda.synchronize(); t = time.perf_counter()
        for x in b[:10]: tr.train_step([x], raise_oom=True)
        torch.cuda.synchronize(); wall = time.perf_counter() - t
    ev = [(e.time_range.start, e.time_range.end, e.name) for e in p.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    names = {"forward", "backward", "optimizer", "clip-grads", "multiply-grads", "reduce-grads"}
    ev = sorted(x for x in ev if x[2] not in names and not x[2].startswith(("Optimizer", "ProfilerStep")))
    busy, end = 0.0, 0.0
    gaps = []
    for a, z, n in ev:
        if a > end:
            if end: gaps.append((a - end, last, n))
            busy += z - a; end = z; last = n
        elif z > end: busy += z - end; end = z; last = n
    print("profile", kind, "wall %.2f ms busy %.2f ms kernels %d" % (wall * 100, busy / 1e4, len(ev) / 10))
    from collections import defaultdict
    by = defaultdict(lambda: [0, 0.0])
    for g, l, n in gaps:
        k = (l[:50], n[:50]); by[k][0] += 1; by[k][1] += g
    for k, (c, total) in sorted(by.items(), key=lambda x: -x[1][1])[:14]: print("  gap %.3f ms an update, %.1f times: %s -> %s" % (total / 1e4, c / 10, *k))
    t = defaultdict(float)
    for a, z, n in ev: t[n[:70]] += z - a
    for n, v in sorted(t.items(), key=lambda x: -x[1])[:12]: print("  %.3f ms %s" % (v / 1e4, n))
