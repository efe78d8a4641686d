"""What a SLURM cluster has, as sinfo says, and a request that fits: else a job waits for ever."""

import argparse
import math
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from fairseq_mhe.common.errors import UserError

#: What a job asks for unless told otherwise, where the cluster has as much.
_CORES, _HOURS = 8, 24.0
#: A node's generic resources: gpu, gpu:2, gpu:a100:4(S:0-1), gpu:a100:4,gpu:t4:1.
_GPUS = re.compile(r"(?:^|,)gpu(?::(?P<type>[^:(,]+))?(?::(?P<count>\d+))?")


@dataclass(frozen=True)
class Node:
    """A node in one of its partitions, which lets jobs run for so many ``hours``."""

    partition: str
    is_default: bool
    cores: int
    gpus: int
    hours: float


@dataclass(frozen=True)
class Request:
    """What each job asks for."""

    cores: int
    gpus: int
    hours: float

    def describe(self) -> str:
        """In words."""
        gpus = f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}" if self.gpus else "no GPU"
        return f"each job asks for {self.cores} cores, {gpus} and {self.hours:g} hours"


def nodes() -> list[Node]:
    """Every node of the cluster, once for each of its partitions; none where sinfo does not say."""
    line = ["sinfo", "--Node", "--noheader", "--format=%P|%c|%G|%l"]
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=60)
        return [_node(*row.split("|")) for row in done.stdout.split()]
    except (OSError, ValueError, TypeError, subprocess.SubprocessError):
        return []


def _node(partition: str, cores: str, resources: str, limit: str) -> Node:
    gpus = 0
    for found in _GPUS.finditer(resources):
        if found["count"]:
            gpus += int(found["count"])
        else:
            gpus += int(found["type"]) if (found["type"] or "").isdecimal() else 1
    name = partition.removesuffix("*")
    return Node(name, partition != name, int(cores.removesuffix("+")), gpus, _hours(limit))


def _hours(limit: str) -> float:
    """sinfo's [[days-]hours:]minutes:seconds; ``infinite`` and ``n/a`` have no end."""
    days, _, clock = limit.rpartition("-")
    if not re.fullmatch(r"\d*", days) or not re.fullmatch(r"(\d+:)?\d+:\d+", clock):
        return math.inf
    hours, minutes, seconds = map(int, f"0:{clock}".split(":")[-3:])
    return 24 * int(days or 0) + hours + minutes / 60 + seconds / 3600


def fitted(args: argparse.Namespace, partition: str | None, cluster: Sequence[Node]) -> Request:
    """The request that the options of a table make, as far as they say, fitted to the cluster.

    Args:
        args: the options of ``runs.slurm`` and ``runs.devices``.
        partition: the one or several that are named, with commas between.
        cluster: `nodes`.

    Raises:
        UserError: no node can ever run it; the line says which option helps.
    """
    gpus = 0 if args.cpu or args.processes else args.gpus or 1
    named = partition.split(",") if partition else []
    there = [n for n in cluster if (n.partition in named if named else n.is_default)] or cluster
    serving = [node for node in there if node.gpus >= gpus]
    if there and not serving:
        raise UserError(_no_gpus(gpus, there, cluster))
    cores = max((node.cores for node in serving), default=_CORES)
    hours = max((node.hours for node in serving), default=_HOURS)
    if args.slurm_cpus is not None and args.slurm_cpus > cores and serving:
        raise UserError(
            f"--slurm-cpus {args.slurm_cpus}: no node of {_names(serving)} has more than {cores} "
            f"cores, so that the jobs would wait for ever: give --slurm-cpus {cores} or fewer"
        )
    if args.slurm_hours is not None and args.slurm_hours > hours and serving:
        raise UserError(
            f"--slurm-hours {args.slurm_hours:g}: {_names(serving)} lets jobs run for {hours:g} "
            "hours: give no more; a job that runs out of time is submitted again and goes on"
        )
    return Request(
        min(_CORES, cores) if args.slurm_cpus is None else args.slurm_cpus,
        gpus,
        min(_HOURS, hours) if args.slurm_hours is None else args.slurm_hours,
    )


def _no_gpus(wanted: int, there: Sequence[Node], cluster: Sequence[Node]) -> str:
    most = max(node.gpus for node in there)
    elsewhere = sorted({node.partition for node in cluster if node.gpus >= wanted})
    if elsewhere:
        advice = f"choose --slurm-option partition={elsewhere[0]}"
    else:
        advice = f"give --gpus {most}" if most else "train on CPUs with --cpu"
    which = f"{wanted} GPUs" if wanted > 1 else "a GPU"
    return f"no node of {_names(there)} has {which}: {advice}"


def _names(found: Sequence[Node]) -> str:
    names = sorted({node.partition for node in found})
    return f"the partition{'s' if len(names) > 1 else ''} {', '.join(names)}"
