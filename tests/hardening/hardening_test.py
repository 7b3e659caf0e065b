#!/usr/bin/env python3
"""Checks that programs were built with the hardening of cmake/hardening.cmake, and without fault points.

usage: hardening_test.py READELF [--fortified] [--without-fault-points LIST] FILE...

FILE: a program, or a shared library, which is told by its name (.so). --fortified: calls of the C library are checked,
which only optimised builds have. --without-fault-points: none of the names in LIST (base/fault_point_list.h) is in a file.
Says for each file what is wrong; exits with 1 if there is anything.
"""
import argparse
import pathlib
import re
import subprocess
import sys


def read(readelf, option, path):
    return subprocess.run([readelf, "--wide", option, path], check=True, capture_output=True, text=True).stdout


def undefined_functions(symbols):
    """The names of the functions that a file takes from other libraries, without their versions."""
    rows = (line.split() for line in symbols.splitlines())
    return {row[7].split("@")[0] for row in rows if len(row) >= 8 and row[3] == "FUNC" and row[6] == "UND"}


def missing(readelf, path, fortified):
    """What the file lacks, each as a text."""
    header = read(readelf, "--file-header", path)
    segments = read(readelf, "--program-headers", path)
    dynamic = read(readelf, "--dynamic", path)
    functions = undefined_functions(read(readelf, "--dyn-syms", path))
    lacks = []
    if not re.search(r"Type:\s+DYN\b", header):
        lacks.append("a random address: it is no position-independent program (-fPIE -pie)")
    elif not path.endswith(".so") and not re.search(r"\(FLAGS_1\).*\bPIE\b", dynamic):
        lacks.append("a random address: it has no flag PIE (-pie)")
    if "GNU_RELRO" not in segments:
        lacks.append("tables of addresses that become read-only (-z relro)")
    if not re.search(r"\(FLAGS\).*\bBIND_NOW\b|\(FLAGS_1\).*\bNOW\b|\(BIND_NOW\)", dynamic):
        lacks.append("addresses that are looked up at the start, so that their whole table is read-only (-z now)")
    stack = re.search(r"GNU_STACK\s+(?:0x[0-9a-f]+\s+){5}([RWE ]+?)\s+0x", segments)
    if stack is None or "E" in stack.group(1):
        lacks.append("a stack that holds no code (-z noexecstack)")
    if "__stack_chk_fail" not in functions:
        lacks.append("checks of the stack (-fstack-protector-strong)")
    checked = {name for name in functions if re.fullmatch(r"__\w+_chk", name)}
    if fortified and not checked:
        lacks.append("checks of calls of the C library (-D_FORTIFY_SOURCE=3)")
    return lacks


def fault_point_texts(list_path):
    """What only a program with fault points contains: their names, and the variable that arms them."""
    names = re.findall(r'ROW\(\w+, "([a-z_.]+)"', pathlib.Path(list_path).read_text())
    if not names:
        sys.exit(f"{list_path}: has no fault points")
    return [*names, "PENSTOCK_FAULT_POINTS"]


def contained(path, texts):
    content = pathlib.Path(path).read_bytes()
    return [text for text in texts if text.encode() in content]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readelf")
    parser.add_argument("--fortified", action="store_true")
    parser.add_argument("--without-fault-points", metavar="LIST")
    parser.add_argument("paths", nargs="+")
    flags = parser.parse_args()
    faults = [f"{path} lacks {what}" for path in flags.paths for what in missing(flags.readelf, path, flags.fortified)]
    if flags.without_fault_points:
        texts = fault_point_texts(flags.without_fault_points)
        faults += [f"{path} has the fault point {text}" for path in flags.paths for text in contained(path, texts)]
    for fault in faults:
        print(fault)
    print(f"{len(flags.paths)} files checked, {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
