"""First GPU run: are graphs right, and what do they gain."""
import itertools, os, sys, time, traceback, statistics
from argparse import Namespace
from pathlib import Path
import torch
from fairseq_mhe.bench import models
from fairseq.trainer import Trainer
import fairseq_mhe
CPU = "--cpu" in sys.argv
T0 = time.time()
LIMIT = float(os.environ.get("LIMIT", "240"))
DATA = Path(os.environ["DATA"])
ROW = "tiny" if CPU else "base"
def settings():
    return Namespace(row=ROW, device="cpu" if CPU else "cuda", seed=1, vocab_size=10000 if CPU else 16384, compile=False)
def log(*x): print(f"[{time.time()-T0:6.1f}]", *x, flush=True)
def sync():
    if not CPU: torch.cuda.synchronize()

def correct(kind, dtype):
    """Loss and gradients of four batches, eager and by graphs, without dropout."""
    s = settings()
    extra = ["--cuda-graphs", "--dropout", "0", "--attention-dropout", "0", "--activation-dropout", "0"]
    cfg, task, model = models.build(kind, s, dtype, ["--max-tokens", "4096", "--save-dir", os.devnull, *extra])
    types = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    model = model.to("cpu" if CPU else "cuda", types[dtype]).train()
    criterion = task.build_criterion(cfg.criterion)
    batches = list(itertools.islice(models.real_batches(DATA, cfg.task, s.vocab_size, 4096), 6))
    from fairseq import utils
    if not CPU: batches = [utils.move_to_cuda(b) for b in batches]
    from fairseq_mhe.models import transformer
    def step(batch, graphs):
        model.args.cuda_graphs = graphs
        for p in model.parameters(): p.grad = None
        loss, n, _ = criterion(model, batch)
        (loss / n).backward()
        return float(loss / n), torch.cat([p.grad.float().flatten() for p in model.parameters() if p.grad is not None])
    if CPU:
        from fairseq_mhe.models import graphs as g
        def rec():
            def record(w):
                w(); return w
            return record
        transformer.recorder = rec
        type(model)._is_for_graphs = lambda self, a, k: self.args.cuda_graphs and not a and k.keys() <= {"src_tokens","prev_output_tokens","src_lengths"}
    worst = [0, 0]
    for rounds in range(3):
        for b in batches:
            l0, g0 = step(b, False)
            l1, g1 = step(b, True)
            worst[0] = max(worst[0], abs(l1 - l0) / l0)
            worst[1] = max(worst[1], float((g1 - g0).norm() / g0.norm()))
    # accumulation: two batches in one update
    model.args.cuda_graphs = True
    for p in model.parameters(): p.grad = None
    for b in batches[:1] * 2:
        loss, n, _ = criterion(model, b); (loss / n).backward()
    g2 = torch.cat([p.grad.float().flatten() for p in model.parameters() if p.grad is not None])
    _, g1 = step(batches[0], True)
    n_graphs = sum(x is not None for x in model._graphs._of_shape.values())
    log("correct", kind, dtype, "loss %.1e gradients %.1e" % tuple(worst), "accumulated %.1e" % float((g2 - 2 * g1).norm() / g2.norm()), "graphs", n_graphs)

RECORDING = [0.0, 0]
from fairseq_mhe.models import transformer as _t
_recorder = _t.recorder
def _timed():
    inner = _recorder()
    def record(work):
        a = time.perf_counter(); r = inner(work); sync(); RECORDING[0] += time.perf_counter() - a; RECORDING[1] += 1
        return r
    return record
_t.recorder = _timed

def train(kind, dtype, tokens, graphs, compiled=False, updates=60, profile=False):
    s = settings()
    extra = ["--max-tokens", str(tokens), "--save-dir", os.devnull] + (["--cuda-graphs"] if graphs else [])
    cfg, task, model = models.build(kind, s, dtype, extra)
    if compiled:
        torch._dynamo.config.recompile_limit = 128
        for layer in (*model.encoder.layers, *model.decoder.layers): layer.compile(dynamic=True)
    trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    epoch = list(models.real_batches(DATA, cfg.task, s.vocab_size, tokens))
    if CPU: epoch = epoch[:2]; updates = 2
    t = time.time(); times = []; RECORDING[:] = [0.0, 0]
    warm = 20 if not graphs else 2 * len(epoch)
    batches = itertools.cycle(epoch)
    sync()
    for i in range(warm):
        a = time.perf_counter(); trainer.train_step([next(batches)], raise_oom=True); sync(); times.append(time.perf_counter() - a)
    first = time.time() - t
    times = []
    count = len(epoch) if graphs else updates
    a0 = time.perf_counter()
    ntok = 0
    for i in range(count):
        a = time.perf_counter(); b = next(batches); ntok += b["ntokens"]; trainer.train_step([b], raise_oom=True); sync(); times.append(time.perf_counter() - a)
    total = time.perf_counter() - a0
    mem = 0 if CPU else torch.cuda.max_memory_reserved() / 2**30
    note = ""
    if graphs and not CPU:
        m = trainer.get_model() if hasattr(trainer, "get_model") else model
        note = f"recording {RECORDING[0]:.1f} s of {RECORDING[1]}; graphs {sum(x is not None for x in model._graphs._of_shape.values())}"
    log("train", kind, dtype, tokens, "graphs" if graphs else "compiled" if compiled else "eager", f"warm {warm} in {first:.1f}s; mean {1e3*total/count:.1f} ms median {1e3*statistics.median(times):.1f} tokens/s {ntok/total:,.0f} reserved {mem:.1f} GiB", note)
    if profile and not CPU:
        from torch.profiler import profile as P, ProfilerActivity as A
        with P(activities=[A.CPU, A.CUDA]) as p:
            a = time.perf_counter()
            for i in range(8): trainer.train_step([next(batches)], raise_oom=True)
            sync(); wall = time.perf_counter() - a
        ev = p.key_averages()
        cuda = sum(e.self_device_time_total for e in ev if e.device_type == torch.autograd.DeviceType.CUDA)
        kern = sum(e.count for e in ev if e.device_type == torch.autograd.DeviceType.CUDA)
        log("profile", kind, "graphs" if graphs else "eager", f"wall {1e3*wall/8:.1f} ms busy {cuda/8e3:.1f} ms kernels {kern/8:.0f}")
        rows = sorted((e for e in ev if e.device_type == torch.autograd.DeviceType.CUDA), key=lambda e: -e.self_device_time_total)[:14]
        for e in rows: print("   gpu %7.2f ms %5.0f  %s" % (e.self_device_time_total / 8e3, e.count / 8, e.key[:90]))
        rows = sorted((e for e in ev if e.device_type != torch.autograd.DeviceType.CUDA), key=lambda e: -e.self_cpu_time_total)[:22]
        for e in rows: print("   cpu %7.2f ms %5.0f  %s" % (e.self_cpu_time_total / 8e3, e.count / 8, e.key[:90]))
        sys.stdout.flush()
    del trainer, model
    if not CPU: torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats()

def host(kind, graphs):
    """cProfile of updates: where the host's time goes."""
    import cProfile, pstats
    s = settings()
    cfg, task, model = models.build(kind, s, "bf16", ["--max-tokens", "4096", "--save-dir", os.devnull] + (["--cuda-graphs"] if graphs else []))
    trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    epoch = list(models.real_batches(DATA, cfg.task, s.vocab_size, 4096))[: 2 if CPU else 40]
    for b in epoch * 2: trainer.train_step([b], raise_oom=True)
    sync()
    p = cProfile.Profile(); p.enable()
    for b in epoch[:20]: trainer.train_step([b], raise_oom=True)
    sync(); p.disable()
    import io; o = io.StringIO(); pstats.Stats(p, stream=o).sort_stats("tottime").print_stats(28)
    print("host profile", kind, graphs, "(20 updates)"); print("\n".join(x[:130] for x in o.getvalue().splitlines()[6:]), flush=True)

def attempt(f, *a, **k):
    if time.time() - T0 > LIMIT: log("no time for", f.__name__, a, k); return
    try: f(*a, **k)
    except BaseException as e:
        log("FAILED", f.__name__, a, k); traceback.print_exc(limit=-8); sys.stderr.flush()

log(torch.__version__, "cpu" if CPU else torch.cuda.get_device_name())
attempt(correct, "mhe_mul", "bf16")
attempt(correct, "mhe_mul", "float32")
attempt(train, "mha", "bf16", 4096, False, profile=True)
attempt(train, "mha", "bf16", 4096, True, profile=True)
attempt(train, "mhe_mul", "bf16", 4096, False)
attempt(train, "mhe_mul", "bf16", 4096, True)
attempt(train, "mha", "bf16", 16384, False, profile=True)
attempt(train, "mha", "bf16", 16384, True)
attempt(train, "mhe_mul", "bf16", 16384, False)
attempt(train, "mhe_mul", "bf16", 16384, True)
attempt(train, "stock", "bf16", 4096, False, updates=30)
attempt(host, "mha", True)
attempt(host, "mha", False)
attempt(correct, "mhe_conv", "bf16")
attempt(correct, "mha", "fp16")
attempt(train, "mhe_mul", "fp16", 4096, True)
attempt(train, "mhe_conv", "bf16", 4096, True)
attempt(train, "mha", "bf16", 4096, False, compiled=True)
log("end")
