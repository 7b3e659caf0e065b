"""Step `families`: a small model of each family trains on the GPU as on the CPU."""

from correctness import trained_row
from training import side_by_side, train

WORKERS = 2
# As a job has them under `model`. Sizes that take a moment, and both kinds: even ones, and ones that fit no alignment.
FAMILIES = {
    "vgg": "vgg: {depth: 11, batch_norm: true, hidden: 32, image: {size: 32, classes: 10}}",
    "alexnet": "alexnet: {hidden: 32, image: {size: 63, classes: 10}}",
    "alexnet, 2012": 'alexnet: {variant: "2012", hidden: 32, image: {size: 63, classes: 10}}',
    "resnet": "resnet: {depth: 50, image: {size: 32, classes: 10}}",
    "cifar_resnet": "cifar_resnet: {depth: 14, width: 6, image: {size: 16, classes: 10}}",
    "lstm_lm": "lstm_lm: {layers: 2, hidden: 33, context: 12, vocabulary: 50, carried: true}",
    "awd_lm": "awd_lm: {hidden: 48, embedding: 17, context: 12, vocabulary: 50}",
    "gnmt": "gnmt: {layers: 6, hidden: 32, vocabulary: 50, source_time: 9, target_time: 7}",
    "s2vt": "s2vt: {vocabulary: 50, frames: 8, words: 5, features: 19, hidden: 32, embedding: 16}",
    "llama": "llama: {layers: 2, width: 36, heads: 6, key_value_heads: 3, hidden: 50, context: 17, vocabulary: 53, qk_norm: true, window: 9}",
    "bert": "bert: {layers: 2, width: 36, heads: 6, hidden: 50, context: 17, positions: 20, vocabulary: 53, head: classification, classes: 5}",
    "layers": """layers:
    - input: {image: {u8: [9, 9, 3]}, label: {i32: []}}
    - image: {of: image}
    - conv2d: {channels: 12, kernel: 3, padding: 1, name: x}
    - conv2d: {of: x, channels: 4, kernel: 1, name: one}
    - max_pool: {of: x, kernel: 3, stride: 1, padding: 1}
    - conv2d: {channels: 4, kernel: 1, name: pool}
    - concat: {of: [one, pool]}
    - group_norm: {groups: 2}
    - silu
    - avg_pool: {global: true}
    - flatten
    - rms_norm
    - linear: {outputs: 10}
    - cross_entropy: {targets: label, label_smoothing: 0.1}""",
}
# A deep net with batch norm over few samples can be compared after its first updates only. A rate that is larger by 1e-5 of
# itself moves this loss by 4 % after 5 steps on the CPU alone, and by 0.05 % after 2.
STEPS = {"resnet": 2}
STEPS_OF_OTHERS = 5
JOB = """name: family
model:
  {model}
data: {{synthetic: {{}}}}
training:
  steps: {steps}
  batch: 16
  microbatches: 4
  optimizer: {{sgd: {{learning_rate: 0.001, momentum: 0.9}}}}
  seed: 3
pipeline: {{method: 1f1b}}
planning: {{split: estimated}}
"""


def families(context):
    def training(name, device):
        job = context.scratch / f"{name.replace(', ', '-')}.yaml"
        job.write_text(JOB.format(model=FAMILIES[name], steps=STEPS.get(name, STEPS_OF_OTHERS)))
        return train(context, job, WORKERS, device, {}, text=False)

    # The losses count here, not the times.
    with side_by_side(context, {name: training(name, "cpu") for name in FAMILIES}, 100) as references:
        for name in FAMILIES:
            yield trained_row(f"loss, {name}, {WORKERS} workers",
                              lambda name=name: training(name, context.device).run(context, 40), references[name])[0]
