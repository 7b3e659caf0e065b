#!/usr/bin/env python3
"""Collects what `make gpu-check` needs on a machine that has neither Penstock's libraries nor a network.

usage: bundle.py BUILD_DIR OUTPUT_DIR TEXT

OUTPUT_DIR/bundle.tar.xz, and beside it what is inside (manifest.json):
  bin/     the programs NAME.elf with a launcher NAME each, the CUDA back-end, the loader of the C library
  usr/     the libraries they need, and headers and CMake files to build the back-end and its tests with
  runtime/ the compiler's libraries; apart, for what is built on the machine has the machine's own
  glibc/   the C library, for systems with an older one
  text.txt what is trained on
CUDA, cuDNN, NCCL and the driver are not carried: a machine with a GPU has them.
"""

import hashlib
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import programs

SIZE_MAX = 64 << 20  # bytes, the archive and the repository's files together
PROGRAMS = ["bin/penstock", "bin/penstock-worker", "bin/penstock-coordinator",
            "tests/compute/compute_conformance_test", "tests/bench/compute_train"]
PLUGIN = "bin/libpenstock_cuda.so"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
ON_THE_MACHINE = re.compile(r"^lib(cuda|cudart|cublas|cublasLt|cudnn\w*|nccl|nvrtc|nvToolsExt|nvtx\w*)\.so")
GLIBC = re.compile(r"^(ld-linux|libc\.|libm\.|libpthread\.|libdl\.|librt\.|libresolv\.|libutil\.|libmvec\.)")
RUNTIME = re.compile(r"^lib(stdc\+\+|gcc_s|gomp)\.")
# To build the compute library, its CUDA back-end and their tests.
HEADERS = ["absl", "gtest", "gmock", "openssl", "x86_64-linux-gnu/openssl", "isa-l", "oneapi", "CL"]
LOOSE_HEADERS = ["isa-l.h", "dnnl*.h", "dnnl*.hpp"]
FOR_LINKING = ["libabsl_*.so*", "libgtest*.a", "libgmock*.a", "libcrypto.so*", "libssl.so*", "libisal.so*",
               "libdnnl.so*", "libOpenCL.so*", "cmake/absl/*", "cmake/GTest/*", "cmake/dnnl/*"]
SYSTEM_LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")


def output_of(*command):
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def needs(path):
    """{name: file} of all shared libraries that a program needs, directly or not."""
    found = {}
    for line in output_of("ldd", path).splitlines():
        name, _, place = line.strip().partition(" => ")
        if place == "not found" and not ON_THE_MACHINE.match(name):
            sys.exit(f"gpu-bundle: {path} needs {name}, which is not here")
        if name.startswith("linux-vdso"):
            continue
        file = (place or name).split(" (0x")[0]
        found[os.path.basename(name.split(" (0x")[0])] = pathlib.Path(file)
    return found


def gpu_tests(build):
    """The test programs labelled `gpu`."""
    tests = programs.gpu_tests(build)
    unbuilt = [name for name, program in tests.items() if program is None]
    if unbuilt:
        sys.exit(f"gpu-bundle: {', '.join(unbuilt)} is not built yet; `make build` builds it")
    return [pathlib.Path(program) for program in tests.values()]


def glibc_needed(files):
    """The newest version of the C library that any of the files asks for."""
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", output_of("objdump", "-T", *files))
    return "{}.{}".format(*max((int(major), int(minor)) for major, minor in versions))


def copy(source, target):
    """Keeps symbolic links between files of one folder, which is what versions of a library are."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() or target.is_symlink():
        return
    if source.is_symlink() and "/" not in os.readlink(source):
        target.symlink_to(os.readlink(source))
        copy(source.parent / os.readlink(source), target.parent / os.readlink(source))
    else:
        shutil.copy(source, target)


def copy_programs(build, root):
    carried = [build / program for program in PROGRAMS] + gpu_tests(build)
    launcher = pathlib.Path(__file__).parent / "launch.sh"
    binaries = root / "bin"
    binaries.mkdir()
    for program in carried:
        shutil.copy(program, binaries / f"{program.name}.elf")
        shutil.copy(launcher, binaries / program.name)
    shutil.copy(build / PLUGIN, binaries / os.path.basename(PLUGIN))
    return carried


def copy_libraries(needed, root):
    """Returns the names of those that are left to the machine."""
    left = []
    for name, path in sorted(needed.items()):
        if ON_THE_MACHINE.match(name):
            left.append(name)
        elif name.startswith("ld-linux"):
            copy(path.resolve(), root / "bin" / "ld-linux-x86-64.so.2")
        elif GLIBC.match(name):
            copy(path.resolve(), root / "glibc" / name)
        elif RUNTIME.match(name):
            copy(path.resolve(), root / "runtime" / name)
        else:
            copy(SYSTEM_LIBRARIES / name if path.parent.samefile(SYSTEM_LIBRARIES) else path,
                 root / LIBRARIES / name)
    return left


def copy_development_files(root):
    include = pathlib.Path("/usr/include")
    for folder in HEADERS:
        shutil.copytree(include / folder, root / "usr/include" / folder)
    for pattern in LOOSE_HEADERS:
        for header in include.glob(pattern):
            shutil.copy(header, root / "usr/include")
    for pattern in FOR_LINKING:
        for path in SYSTEM_LIBRARIES.glob(pattern):
            copy(path, root / LIBRARIES / path.relative_to(SYSTEM_LIBRARIES))


def strip(root):
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.name.startswith("ld-linux"):
            continue
        if path.suffix == ".elf" or ".so" in path.name:
            subprocess.run(["strip", "--strip-unneeded", str(path)], check=True)


def write_archive(root, target):
    partial = target.with_suffix(".partial")
    with lzma.open(partial, "wb", preset=6) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(root, arcname=".")
    partial.rename(target)


def repository_bytes():
    """What travels beside the archive."""
    names = output_of("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return sum(os.path.getsize(name) for name in names if name and os.path.isfile(name))


def main():
    build, output, text = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    if not (build / PLUGIN).exists():
        sys.exit(f"gpu-bundle: {build / PLUGIN} is missing: the CUDA back-end is built only where the CUDA "
                 "toolkit and cuDNN are found")
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        carried = copy_programs(build, root)
        needed = {}
        for path in [*carried, build / PLUGIN]:
            needed.update(needs(path))
        left = copy_libraries(needed, root)
        copy_development_files(root)
        strip(root)
        shutil.copy(text, root / "text.txt")
        version = glibc_needed([*root.glob("bin/*.elf"), *root.glob("bin/*.so"),
                                *root.glob("runtime/*"),
                                *(path for path in (root / LIBRARIES).glob("*.so*") if not path.is_symlink())])
        (root / "glibc/version").write_text(version + "\n")
        manifest = {
            "commit": output_of("git", "describe", "--always", "--dirty").strip(),
            "programs": sorted(program.name for program in carried),
            "gpu_tests": sorted(program.name for program in gpu_tests(build)),
            "left_to_the_machine": left,
            "glibc": version,
            "text_bytes": text.stat().st_size,
        }
        (root / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
        output.mkdir(parents=True, exist_ok=True)
        archive = output / "bundle.tar.xz"
        write_archive(root, archive)
        unpacked = sum(path.stat().st_size for path in root.rglob("*")
                       if path.is_file() and not path.is_symlink())
    manifest["sha256"] = hashlib.sha256(archive.read_bytes()).hexdigest()
    (output / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    size, beside = archive.stat().st_size, repository_bytes()
    print(f"gpu-bundle: {archive}: {size / 2**20:.1f} MiB ({unpacked / 2**20:.0f} MiB unpacked), "
          f"{(size + beside) / 2**20:.1f} MiB with the repository's files, at most {SIZE_MAX >> 20}")
    print(f"gpu-bundle: glibc {version} or newer runs it as it is; left to the machine: {', '.join(left)}")
    if size + beside > SIZE_MAX:
        archive.unlink()
        sys.exit("gpu-bundle: too large to carry")


if __name__ == "__main__":
    main()
