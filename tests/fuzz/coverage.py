#!/usr/bin/env python3
"""Says how many lines of the parsers the inputs of the fuzz targets reach.

usage: tests/fuzz/coverage.py BUILD [TARGET...]

Runs each target once over the inputs under tests/fuzz/corpus and those that were found (BUILD/corpus), and prints a row of a table with the
lines and branches of the files that it is there for. Clang must have built it for that:

    cmake --preset fuzz-fast -DCMAKE_CXX_FLAGS="-fprofile-instr-generate -fcoverage-mapping" -DCMAKE_EXE_LINKER_FLAGS=-fprofile-instr-generate
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Without what the targets have no call for, such as a file's writer.
FILES = {
    "catalogue": ["data/gettext_catalogue.cc"],
    "certificate": ["services/security/certificate.cc"],
    "cluster_profile": ["job/profile/cluster_profile.cc"],
    "cluster_spec": ["job/profile/cluster_spec.cc"],
    "coordinator_calls": ["coordinator/coordinator.cc", "coordinator/membership.cc"],
    "device_times": ["job/profile/device_times.cc"],
    "etcd_answers": ["services/coordinator/etcd_store.cc", "services/coordinator/etcd_store_read.cc"],
    "frame": ["services/transport/frame.cc", "services/transport/gather.cc", "services/transport/message_assembler.cc"],
    "http_request": ["services/http/exchange.cc"],
    "job_spec": ["job/defaults.cc", "job/resolve.cc"],
    "job_yaml": ["job/yaml/*.cc"],
    "manifest": ["checkpoint/manifest.cc", "checkpoint/strict_json.cc"],
    "model_config": ["job/hugging_face/*.cc"],
    "model_profile": ["job/profile/model_profile.cc"],
    "pairs": ["data/pair_files.cc"],
    "pipedream_profile": ["planner/graph/pipedream_profile.cc"],
    "record_index": ["data/record_index.cc"],
    "record_shard": ["data/record_files.cc"],
    "recorded_order": ["schedule/recorded_order_text.cc"],
    "report_run": ["coordinator/training_run.cc"],
    "safetensors": ["checkpoint/safetensors.cc"],
    "schedule_text": ["schedule/text_parse.cc", "schedule/text_print.cc", "schedule/pipelining_csv.cc"],
    "small_text": ["schedule/action.cc", "schedule/weight_policy.cc", "services/etcd/etcd_location.cc", "services/rpc/address.cc",
                   "services/security/identity.cc"],
    "snapshot_parts": ["worker/snapshot_memory.cc"],
    "state_file": ["services/coordinator/job_store*.cc", "services/coordinator/sqlite.cc", "services/coordinator/store_witness.cc"],
    "timeline": ["results/timeline_message.cc"],
    "tokenizer": ["tokenizer/*.cc"],
}


def summaries(build, target, folder):
    program = build / "tests" / "fuzz" / f"{target}_fuzz"
    raw, merged = folder / f"{target}.raw", folder / f"{target}.profile"
    inputs = [path for path in (build / "corpus" / target, ROOT / "tests" / "fuzz" / "corpus" / target) if path.is_dir()]
    subprocess.run([program, *inputs, "-runs=0"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT,
                   env={**os.environ, "LLVM_PROFILE_FILE": str(raw)})
    subprocess.run(["llvm-profdata", "merge", "-sparse", raw, "-o", merged], check=True)
    files = sorted(str(path) for pattern in FILES[target] for path in ROOT.glob(pattern))
    if not files:
        sys.exit(f"coverage.py: {target}: there is no file {', '.join(FILES[target])}")
    shown = subprocess.run(["llvm-cov", "export", "-summary-only", program, f"-instr-profile={merged}", *files], check=True,
                           stdout=subprocess.PIPE, text=True)
    return [file["summary"] for file in json.loads(shown.stdout)["data"][0]["files"]]


def part(all_of, what):
    covered = sum(summary[what]["covered"] for summary in all_of)
    count = sum(summary[what]["count"] for summary in all_of)
    return f"{100 * covered / count:.0f} %" if count else "-"


def main():
    if len(sys.argv) < 2 or set(sys.argv[2:]) - set(FILES):
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    print("| target | lines | branches | of |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for target in sys.argv[2:] or FILES:
            all_of = summaries(build, target, pathlib.Path(folder))
            print(f"| `{target}` | {part(all_of, 'lines')} | {part(all_of, 'branches')} | {', '.join(FILES[target])} |", flush=True)


if __name__ == "__main__":
    main()
