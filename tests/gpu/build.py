"""Step `build`: the compute library, its CUDA back-end and the GPU's tests, built on this machine without
gRPC, from the headers and libraries of the bundle. It compiles beside the steps that measure no times."""

import os
import pathlib
import shutil

import correctness
import device
import process
import programs
import report
from training import StepFailed

LINKED = ["cudnn", "cudnn_graph", "nccl"]  # CMake looks for libNAME.so, Python packages have libNAME.so.9
LOG = "build.log"


def link_libraries(context, folder):
    """A folder in which CMake finds the libraries of CUDA's family by name."""
    folder.mkdir(exist_ok=True)
    versions = {"nccl": "2"}
    names = {name: f"lib{name}.so.{versions.get(name, '9')}" for name in LINKED}
    found, _ = device.find_libraries(list(names.values()))
    for name, file in names.items():
        link = folder / f"lib{name}.so"
        if file in found and not link.exists():
            link.symlink_to(found[file])
    return {name: pathlib.Path(path) for name, path in found.items()}


def configure_command(context, folder, libraries, headers):
    command = ["cmake", "-S", ".", "-B", folder, "-DCMAKE_BUILD_TYPE=Release", "-DPENSTOCK_CLUSTER=OFF",
               "-DPENSTOCK_BUILD_BENCHMARKS=OFF", "-DPENSTOCK_WERROR=OFF",
               f"-DPENSTOCK_CUDA={'OFF' if context.dry_run else 'ON'}",
               "-DCMAKE_POLICY_VERSION_MINIMUM=3.5"]  # CMake 4 and the packages of Debian 12
    if shutil.which("ninja"):
        command += ["-G", "Ninja"]
    if context.programs.prefix:
        command.append(f"-DCMAKE_PREFIX_PATH={context.programs.prefix / 'usr'}")
    if context.gpu:
        command += [f"-DCMAKE_CUDA_ARCHITECTURES={context.gpu.capability}-real",
                    f"-DCMAKE_LIBRARY_PATH={libraries}", f"-DCMAKE_INCLUDE_PATH={';'.join(headers)}"]
    return command


def header_folders(found):
    """Where the headers lie that Python packages keep beside their libraries."""
    folders = {path.parent.parent / "include" for path in found.values()}
    return sorted(str(folder) for folder in folders if folder.exists() and str(folder) != "/usr/include")


def prepare(context):
    """Configures, and starts the compiler in the background; what fails, `check` reports."""
    try:
        _prepare(context)
    except (StepFailed, OSError, ValueError) as failure:
        context.results["build failure"] = str(failure)


def _prepare(context):
    if not shutil.which("cmake"):
        raise StepFailed("there is no cmake here")
    folder = context.scratch / "build"
    found = link_libraries(context, context.scratch / "libraries") if context.gpu else {}
    headers = header_folders(found)
    environment = {"CPATH": ":".join([*headers, os.environ.get("CPATH", "")]).rstrip(":")} if headers else {}
    command = configure_command(context, folder, context.scratch / "libraries", headers)
    result = context.run(command, 60, environment)
    if result.code != 0:
        raise StepFailed(f"cmake: {result.complaint()}")
    tests = programs.gpu_tests(folder)
    if not tests:
        raise StepFailed("the build has no tests with the label gpu")
    if not context.dry_run:
        jobs = max(1, (os.cpu_count() or 2) - 4)  # the trainings beside it want some cores
        command = ["nice", "cmake", "--build", folder, "--parallel", jobs, "--target",
                   *tests]
        with open(context.scratch / LOG, "w", encoding="utf-8") as log:
            context.background["build"] = process.start(
                command, {**context.environment, **environment}, log=log)
    context.results["build"] = (folder, tests)


def check(context):
    """Waits for the compiler and runs what it made."""
    if "build failure" in context.results:
        raise StepFailed(context.results["build failure"])
    folder, tests = context.results["build"]
    if context.dry_run:
        return [report.judged("build without gRPC", f"configured, {len(tests)} program(s)", "configures",
                              True)]
    result = process.finish(context.background.pop("build"), context.limit(120))
    result.output = (context.scratch / LOG).read_text(errors="replace")
    if result.code != 0 or result.timed_out:
        raise StepFailed(f"{result.complaint()} (all of it: {context.scratch / LOG})")
    environment = {"LD_LIBRARY_PATH": context.programs.library_path(context.cuda_folders)}
    return [correctness.run_tests(context, f"built here, {correctness.title(name)}", program, [], 60,
                                  env=environment)[0] for name, program in programs.gpu_tests(folder).items()]
