"""The GPU, its driver, and the libraries that CUDA programs load on this machine."""

import ctypes
import dataclasses
import glob
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR = 75, 76  # CUdevice_attribute
DRIVER_FOLDERS = ["/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"]
TOOLKIT_FOLDERS = ["/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/local/cuda-13*/lib64",
                   "/usr/local/cuda-13*/targets/x86_64-linux/lib", "/usr/lib/x86_64-linux-gnu"]


@dataclasses.dataclass
class Gpu:
    name: str
    memory_bytes: int
    capability: str  # "90"
    driver: str
    cuda: str  # the newest version that the driver serves
    driver_folder: str  # where libcuda.so.1 lies, or "" if the loader knows


def _load_driver():
    """(the driver's library, its folder if the loader does not look there by itself)."""
    for folder in ["", *DRIVER_FOLDERS]:
        try:
            return ctypes.CDLL(os.path.join(folder, "libcuda.so.1")), folder
        except OSError:
            continue
    return None, ""


def _driver_version():
    try:
        text = pathlib.Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        text = ""
    match = re.search(r"\b(\d{3,}\.\d+(\.\d+)?)\b", text)
    return match[1] if match else "unknown"


def find_gpu():
    """The first GPU, or a text that says why there is none."""
    driver, folder = _load_driver()
    if driver is None:
        return "no NVIDIA driver (libcuda.so.1 is not here)"
    count, device, code = ctypes.c_int(0), ctypes.c_int(0), driver.cuInit(0)
    if code == 0:
        code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code != 0 or count.value == 0:
        return f"an NVIDIA driver, but no GPU that it serves (CUresult {code})"
    driver.cuDeviceGet(ctypes.byref(device), 0)
    name, memory = ctypes.create_string_buffer(200), ctypes.c_size_t(0)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    version, capability = ctypes.c_int(0), []
    driver.cuDriverGetVersion(ctypes.byref(version))
    for attribute in (COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR):
        number = ctypes.c_int(0)
        driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
        capability.append(str(number.value))
    return Gpu(name.value.decode(), memory.value, "".join(capability), _driver_version(),
               f"{version.value // 1000}.{version.value % 1000 // 10}", folder)


CUDNN = "libcudnn.so.9"


def _cudnn_version(folder):
    """As cuDNN writes it, 91900; by a process of its own, for the library is large and a process loads one."""
    code = ("import ctypes, sys; get = ctypes.CDLL(sys.argv[1]).cudnnGetVersion; get.restype = ctypes.c_size_t; "
            "print(get())")
    try:
        asked = subprocess.run([sys.executable, "-c", code, os.path.join(folder, CUDNN)], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, timeout=60, check=True)
        return int(asked.stdout)
    except (subprocess.SubprocessError, ValueError):
        return 0  # it does not load here


def _candidates():
    """Folders in which CUDA's libraries may lie: those of the search path, the system's, and those that Python packages
    bring. The folder with the newest cuDNN comes first, unless one of the search path has cuDNN: what it computes by one
    kernel grows from version to version."""
    named, others = _search_path(), _folders()
    folders = list(dict.fromkeys([*named, *others]))
    with_cudnn = [folder for folder in folders if os.path.exists(os.path.join(folder, CUDNN))]
    if len(with_cudnn) > 1 and with_cudnn[0] not in named:
        newest = max(with_cudnn, key=_cudnn_version)  # the first of equal ones
        folders.remove(newest)
        folders.insert(0, newest)
    return folders


def _search_path():
    return [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]


def _folders():
    folders = []
    nvcc = shutil.which("nvcc")
    if nvcc:
        folders.append(str(pathlib.Path(nvcc).resolve().parent.parent / "lib64"))
    for pattern in TOOLKIT_FOLDERS:
        folders += sorted(glob.glob(pattern))
    cached = subprocess.run(["ldconfig", "-p"], stdout=subprocess.PIPE, text=True, check=False).stdout \
        if shutil.which("ldconfig") else ""
    folders += [os.path.dirname(path) for path in re.findall(r"=> (\S*lib(?:cu|nccl)\S*)", cached)]
    torch = importlib.util.find_spec("torch")
    if torch and torch.origin:
        folders += sorted(glob.glob(f"{pathlib.Path(torch.origin).parent.parent}/nvidia/*/lib"))
    return list(dict.fromkeys(folders))


def find_libraries(names):
    """({name: path}, names that are nowhere)."""
    found = {}
    for folder in _candidates():
        for name in names:
            path = os.path.join(folder, name)
            if name not in found and os.path.exists(path):
                found[name] = path
    return found, [name for name in names if name not in found]


# Prints the versions of the libraries whose paths are given; a process of its own, for they are large.
VERSIONS = r"""
import ctypes, sys
for path in sys.argv[1:]:
    library = ctypes.CDLL(path)
    number = ctypes.c_int(0)
    if "libcudnn.so" in path:
        library.cudnnGetVersion.restype = ctypes.c_size_t
        v = library.cudnnGetVersion()
        print(f"cuDNN {v // 10000}.{v % 10000 // 100}.{v % 100}")
    elif "libcublasLt.so" in path:
        library.cublasLtGetVersion.restype = ctypes.c_size_t
        v = library.cublasLtGetVersion()
        print(f"cuBLASLt {v // 10000}.{v % 10000 // 100}.{v % 100}")
    elif "libcudart.so" in path:
        library.cudaRuntimeGetVersion(ctypes.byref(number))
        print(f"CUDA runtime {number.value // 1000}.{number.value % 1000 // 10}")
    elif "libnvrtc.so" in path:
        minor = ctypes.c_int(0)
        library.nvrtcVersion(ctypes.byref(number), ctypes.byref(minor))
        print(f"NVRTC {number.value}.{minor.value}")
    elif "libnccl.so" in path:
        library.ncclGetVersion(ctypes.byref(number))
        v = number.value
        print(f"NCCL {v // 10000}.{v % 10000 // 100}.{v % 100}")
"""
