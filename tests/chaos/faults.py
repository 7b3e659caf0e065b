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


def cut_link(cluster, taken, draw):
    cluster.links[draw.choice(taken)].cut(1.0)
    return set()


def black_hole(cluster, taken, draw):
    cluster.links[draw.choice(taken)].swallow(6.0)
    return set(taken)  # a neighbour that hears nothing any more does not know on which side that is


def silence(cluster, taken, draw):
    """As if the worker's machine had lost its network: nothing comes to it, and it reaches the coordinator no more."""
    worker = draw.choice(taken)
    for link in (cluster.links[worker], cluster.uplinks[worker]):
        link.swallow(20.0)
    return {worker}  # whose heartbeats stay away before a neighbour gives its tensors up


def flip_bit(cluster, taken, draw):
    cluster.links[draw.choice(taken)].flip()
    return set()


def lose_bytes(cluster, taken, draw):
    cluster.links[draw.choice(taken)].lose()
    return set()


def repeat_bytes(cluster, taken, draw):
    cluster.links[draw.choice(taken)].repeat()
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
    ends_attempts: typing.Optional[bool] = True  # the attempt at the job that is under way ends; None: it may
    needs_links: bool = False
    kills_workers: int = 0  # this many, or all (-1)
    needs_spare: bool = False  # a job would wait for the worker longer than it trains


FAULTS = [
    Fault("kill", kill, weight=6, kills_workers=1),
    Fault("kill-two", kill_two, weight=1, kills_workers=2),
    Fault("kill-coordinator", kill_coordinator, weight=2, ends_attempts=False),
    Fault("kill-all", kill_all, weight=1, kills_workers=-1),
    Fault("freeze", freeze, weight=1),
    Fault("freeze-shortly", freeze_shortly, weight=1, ends_attempts=False),
    Fault("freeze-coordinator", freeze_coordinator, weight=1, ends_attempts=False),
    Fault("cut-link", cut_link, weight=1, ends_attempts=False, needs_links=True),
    Fault("flip-bit", flip_bit, weight=1, ends_attempts=False, needs_links=True),
    Fault("lose-bytes", lose_bytes, weight=1, ends_attempts=False, needs_links=True),
    Fault("repeat-bytes", repeat_bytes, weight=1, ends_attempts=False, needs_links=True),
    Fault("black-hole", black_hole, weight=1, ends_attempts=None, needs_links=True),
    Fault("silence", silence, weight=1, needs_links=True, needs_spare=True, kills_workers=1),
]
BY_NAME = {fault.name: fault for fault in FAULTS}


def draw_faults(draw, among, seconds, most=3, spare=None):
    """One to `most` faults of a run that takes about `seconds` undisturbed: [(pause, fault)].

    A pause is in seconds, from the run's first step or from when it had got over the fault before. `spare`: how many
    workers may be killed; None: any number, for they come back.
    """
    chosen = []
    for _ in range(draw.randint(1, most)):
        may = [fault for fault in among if spare is None or 0 <= fault.kills_workers <= spare]
        if not may:
            break  # no worker is left that may be killed
        fault = draw.choices(may, weights=[fault.weight for fault in may])[0]
        chosen.append(fault)
        if spare is not None:
            spare -= fault.kills_workers
    moments = sorted(draw.uniform(0.0, 0.7 * seconds) for _ in chosen)
    pauses = [later - earlier for earlier, later in zip([0.0, *moments], moments)]
    return list(zip(pauses, chosen))
