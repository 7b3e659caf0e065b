"""Where the programs that are checked lie: unpacked from the bundle, or in a build folder."""

import json
import os
import pathlib
import shutil
import subprocess
import tarfile

BUNDLE = "build/gpu-bundle/bundle.tar.xz"
LIBRARIES = "usr/lib/x86_64-linux-gnu"


def gpu_tests(build):
    """{name: program} of a build folder's tests with the label gpu, as ctest knows them; the program is None until it is
    built. Errors: ValueError."""
    listed = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1", "-L", "^gpu$"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    if listed.returncode != 0:
        raise ValueError(f"ctest does not list the tests of {build}: {listed.stderr.strip()}")
    return {test["name"]: test.get("command", [None])[0] for test in json.loads(listed.stdout)["tests"]}


class Programs:
    def __init__(self, folders, gpu_tests, prefix, text, manifest):
        self._folders = folders
        self.gpu_tests = gpu_tests  # names of the test programs that need a GPU
        self.prefix = prefix        # libraries to build with, or None: the system's
        self.text = text            # what to train on, or None
        self.manifest = manifest

    def path(self, name):
        """Errors: FileNotFoundError."""
        for folder in self._folders:
            if (folder / name).exists():
                return folder / name
        raise FileNotFoundError(f"no program {name} in {', '.join(map(str, self._folders))}")

    def library_path(self, cuda_folders):
        """LD_LIBRARY_PATH for programs that were built with the bundle's libraries."""
        own = [str(self.prefix / LIBRARIES)] if self.prefix else []
        more = [os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else []
        return ":".join([*own, *cuda_folders, *more])


def unpack(archive, target):
    """The bundle; unpacked once for each version of it."""
    stamp = target / "unpacked"
    version = f"{archive.stat().st_size} {archive.stat().st_mtime_ns}"
    if not stamp.exists() or stamp.read_text() != version:
        shutil.rmtree(target, ignore_errors=True)
        with tarfile.open(archive, "r:xz") as packed:
            # Plain files and links only, where this Python can tell.
            packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
            packed.extractall(target)
        stamp.write_text(version)
    manifest = json.loads((target / "manifest.json").read_text())
    return Programs([target / "bin"], manifest["gpu_tests"], target, target / "text.txt", manifest)


def in_build(build):
    folders = [build / folder for folder in ("bin", "tests/compute", "tests/bench")]
    if not (folders[0] / "penstock").exists():
        raise FileNotFoundError(f"{folders[0]}/penstock is missing; `make build` makes it, `make gpu-bundle` "
                                "makes something to carry")
    tests = [name for name, program in gpu_tests(build).items() if program]
    return Programs(folders, tests, None, None, {})
