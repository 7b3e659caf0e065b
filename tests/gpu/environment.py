"""Step `environment`: what this machine is, and whether the programs start here."""

import os
import platform
import sys

import device
import process
import report

# cuDNN compiles its attention with NVRTC.
NEEDED = ["libcudart.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libnvrtc.so.13"]
# Loaded where several GPUs reduce.
WANTED = ["libnccl.so.2"]


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def torch_version(context):
    result = context.run([sys.executable, "-c", "import torch; print(torch.__version__)"], 60)
    return result.output.strip() if result.code == 0 else None


def versions(paths):
    result = process.run([sys.executable, "-c", device.VERSIONS, *paths], 60)
    return result.output.splitlines()


def use_cuda(context):
    """Finds CUDA's libraries for the programs. Returns {name: path} and the names that are nowhere."""
    names = context.programs.manifest.get("left_to_the_machine", NEEDED)
    found, missing = device.find_libraries(sorted({*names, *NEEDED, *WANTED} - {"libcuda.so.1"}))
    folders = [os.path.dirname(path) for path in found.values()] + [context.gpu.driver_folder]
    context.use_libraries(list(dict.fromkeys(filter(None, folders))))
    return found, [name for name in missing if name not in WANTED]


def check(context):
    rows = []
    torch = torch_version(context)
    facts = {"cpu": cpu_name(), "cores": os.cpu_count(), "libc": " ".join(platform.libc_ver()),
             "python": platform.python_version(), "torch": torch,
             "commit": context.programs.manifest.get("commit")}
    if context.gpu:
        gpu = context.gpu
        found, missing = use_cuda(context)
        facts.update(gpu=gpu.name, memory_bytes=gpu.memory_bytes, capability=gpu.capability, driver=gpu.driver,
                     libraries=found, versions=versions(list(found.values())))
        rows.append(report.Row("gpu", f"{gpu.name}, {gpu.memory_bytes / 2**30:.0f} GiB, sm_{gpu.capability}, "
                                      f"driver {gpu.driver}, CUDA {gpu.cuda}", values=facts))
        rows.append(report.judged("libraries", ", ".join(facts["versions"]) if not missing else
                                  f"missing: {', '.join(missing)}", "all found", not missing))
    else:
        rows.append(report.Row("cpu", f"{facts['cpu']}, {facts['cores']} cores", values=facts))
    rows.append(report.Row("torch", torch) if torch else report.skipped("torch", "no PyTorch here"))
    result = context.run([context.programs.path("penstock"), "--version"], 20)
    started = result.code == 0
    rows.append(report.judged("programs", result.output.strip() if started else result.complaint(), "start",
                              started))
    return rows
