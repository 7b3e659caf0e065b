"""What a cluster does in a trial. Each scenario ends with a job that has trained all its steps, and returns its status."""
import signal

STEPS = 400
EVERY_STEPS = 40
ONE_THIRD = STEPS // 3


def plain(cluster):
    return cluster.await_end(cluster.submit("plain"))


def signalled(cluster, process, number):
    """The process gets a signal in mid-run, ends, and comes back."""
    job_id = cluster.submit("signalled")
    cluster.await_step(job_id, ONE_THIRD)
    lives = len(cluster.lives_of(process))
    cluster.signal(process, number)
    cluster.await_next_life(process, lives)
    return cluster.await_end(job_id)


def worker_drains(cluster):
    return signalled(cluster, "worker-1", signal.SIGTERM)


def coordinator_drains(cluster):
    return signalled(cluster, "coordinator", signal.SIGTERM)


def coordinator_is_killed(cluster):
    return signalled(cluster, "coordinator", signal.SIGKILL)


def worker_is_killed(cluster):
    """The other worker stops its run, and both go on from the last checkpoint."""
    return signalled(cluster, "worker-1", signal.SIGKILL)


def cancelled_and_resumed(cluster):
    job_id = cluster.submit("first")
    cluster.await_step(job_id, ONE_THIRD)
    cluster.cancel(job_id)
    cluster.await_end(job_id)
    return cluster.await_end(cluster.submit("second", "--resume", "latest"))


def damaged_and_resumed(cluster):
    """The newest checkpoint of a finished job lacks the end of a file, and the job goes on from the one before."""
    cluster.await_end(cluster.submit("first"))
    newest = max(cluster.checkpoints.glob("step-*"))
    damaged = min(newest.glob("layer-*"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    return cluster.await_end(cluster.submit("second", "--resume", "latest"))


IN_A_FILE = [plain, worker_drains, coordinator_drains, coordinator_is_killed, worker_is_killed, cancelled_and_resumed,
             damaged_and_resumed]
# With the coordinator's state in etcd.
IN_ETCD = [plain, coordinator_is_killed]
# With workers that keep their checkpoints at the coordinator. A worker that was killed reads one from there.
WITH_REMOTE_CHECKPOINTS = [plain, worker_is_killed]
