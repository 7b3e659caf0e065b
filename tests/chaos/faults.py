"""The faults that a run of chaos draws from. A new one is a function and a row of FAULTS."""
import dataclasses
import signal
import typing


def kill(cluster, taken, draw):
    worker = draw.choice(taken)
    cluster.signal(worker, signal.SIGKILL)
    return {worker}


def kill_two(cluster, taken, draw):
    workers = draw.sample(taken, 2)
    for worker in workers:
        cluster.signal(worker, signal.SIGKILL)
    return set(workers)


def kill_coordinator(cluster, *_):
    cluster.signal("coordinator", signal.SIGKILL)
    return set()


def kill_all(cluster, *_):
    for name in cluster.commands:
        cluster.signal(name, signal.SIGKILL)
    return set(cluster.workers)


def freeze(cluster, taken, draw):
    worker = draw.choice(taken)
    cluster.freeze(worker, 3.5)
    return {worker}


def freeze_shortly(cluster, taken, draw):
    cluster.freeze(draw.choice(taken), 1.0)
    return set()


def freeze_coordinator(cluster, *_):
    cluster.freeze("coordinator", 2.0)
    return set()


@dataclasses.dataclass(frozen=True)
class Fault:
    """`do(cluster, taken, draw)` does it and returns the workers to which the end of an attempt may be laid.

    `taken`: the workers that the job runs on.
    """
    name: str
    do: typing.Callable
    weight: int  # how often it is drawn
    ends_attempts: bool = True  # the attempt at the job that is under way ends


FAULTS = [
    Fault("kill", kill, weight=6),
    Fault("kill-two", kill_two, weight=1),
    Fault("kill-coordinator", kill_coordinator, weight=2),
    Fault("kill-all", kill_all, weight=1),
    Fault("freeze", freeze, weight=1),
    Fault("freeze-shortly", freeze_shortly, weight=1, ends_attempts=False),
    Fault("freeze-coordinator", freeze_coordinator, weight=1, ends_attempts=False),
]
BY_NAME = {fault.name: fault for fault in FAULTS}


def draw_faults(draw, among, seconds):
    """One to three faults of a run that takes about `seconds` undisturbed: [(seconds after its first step, fault)]."""
    count = draw.choice([1, 1, 2, 3])
    chosen = draw.choices(among, weights=[fault.weight for fault in among], k=count)
    moments = sorted(draw.uniform(0.0, 0.9 * seconds) for _ in chosen)
    return list(zip(moments, chosen))
