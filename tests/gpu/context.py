"""What the steps of a check share: programs, device, sizes, and the time that is left."""

import dataclasses
import os
import pathlib
import time

import process
import report
from training import StepFailed


@dataclasses.dataclass
class Sizes:
    """How large the trainings are; `model` and `load` are keys of a job under model.gpt and training."""
    loss: dict
    loss_workers: int
    model: dict
    load: dict
    precision: str
    warmup_steps: int  # of GPT-2, not counted
    steps: int         # of GPT-2, counted
    matmul_size: int
    copy_bytes: int


# 4 microbatches of the Shakespeare example's size each, and GPT-2 as it was published, but for a vocabulary
# rounded up to a multiple of 64, as everybody trains it: rows of 50257 numbers fit no alignment.
FULL = Sizes(
    loss={"training.steps": 25},
    loss_workers=4,
    model={"layers": 12, "width": 768, "heads": 12, "context": 1024, "vocabulary": 50304},
    load={"batch": 128, "microbatches": 8},
    precision="bf16", warmup_steps=6, steps=24, matmul_size=8192, copy_bytes=1 << 30)

# Seconds on a CPU; for the check itself.
TINY = Sizes(
    loss={"training.steps": 10, "training.batch": 8, "training.microbatches": 4, "model.gpt.layers": 3,
          "model.gpt.width": 32, "model.gpt.heads": 2, "model.gpt.context": 32,
          "training.learning_rate.warmup_steps": 2},
    loss_workers=4,
    model={"layers": 2, "width": 64, "heads": 2, "context": 64, "vocabulary": 256},
    load={"batch": 16, "microbatches": 4},
    precision="f32", warmup_steps=2, steps=8, matmul_size=256, copy_bytes=1 << 20)


class Context:
    def __init__(self, programs, gpu, text, scratch, deadline_s, results=None):
        self.programs, self.gpu, self.text = programs, gpu, pathlib.Path(text)
        self.dry_run = gpu is None
        self.device = "cpu" if self.dry_run else "cuda:0"
        self.sizes = TINY if self.dry_run else FULL
        self.scratch = pathlib.Path(scratch)
        self.environment = dict(os.environ)
        self.environment.pop("OPENBLAS_CORETYPE", None)  # slows PyTorch down where an image exports it
        self.environment.pop("PENSTOCK_DEVICE", None)
        self.cuda_folders = []
        self.background = {}  # what a step left running for a later one
        self.results = {} if results is None else results  # figures that later steps need
        self.reserved_s = 0.0
        self._deadline = time.monotonic() + deadline_s
        self._children = []

    def limit(self, own_s):
        """Seconds that something may take: its own limit, or what later steps leave."""
        left = self._deadline - time.monotonic() - self.reserved_s
        if left < 3.0:
            raise StepFailed("no time left for it")
        return min(own_s, left)

    def use_libraries(self, folders):
        """Where the launchers of the bundle and built programs find CUDA."""
        self.cuda_folders = folders
        self.environment["PENSTOCK_CUDA_PATH"] = ":".join(folders)

    def run(self, command, limit_s, env=None, cwd=None):
        return process.run(command, self.limit(limit_s), {**self.environment, **(env or {})}, cwd)

    def start(self, command):
        """A program that runs beside others until the step ends."""
        self._children.append(process.start(command, self.environment))
        return self._children[-1]

    def kill_children(self):
        for child in self._children:
            if child.poll() is None:
                process.kill(child)
            child.wait()
        self._children.clear()

    def judged_speed(self, step, figure, target, good, values=None):
        """Like report.judged, but without a judgement where tiny sizes on a CPU say nothing."""
        row = report.judged(step, figure, target, good, values)
        if self.dry_run:
            row.status = report.NOTED
        return row
