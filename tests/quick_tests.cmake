# The tests that `make test-asan` and `make test-tsan` build and run, which is label `quick` in those builds: few enough
# that both take some minutes from scratch, and chosen by what each sanitizer sees. `ctest --preset asan` and `tsan` run all.
#
# An entry is a program, or a part of one as PROGRAM:FILTER (GoogleTest's), where the whole would take too long.

set(PENSTOCK_QUICK_TESTS)
if(PENSTOCK_SANITIZE MATCHES "address")
  # Memory: all parsers of bytes from outside, checkpoints, what the coordinator keeps, schedules, tensors on their way.
  set(PENSTOCK_QUICK_TESTS
    base_test
    fuzz_corpus_test
    checkpoint_test
    schedule_test
    "coordinator_test:-Simulation.RandomHistories*"
    worker_parts_test
    "worker_run_test:Drain.*:Equivalence.OneFOneB_*:Equivalence.PipeDream_*:OffloadTest.*:RecomputeTest.*:Resume.AnyFile*:Resume.DiskFull*:RunErrors.*:SnapshotRun.*"
    services_security_test
    services_rpc_test
    services_http_test
    services_transport_test)
elseif(PENSTOCK_SANITIZE STREQUAL "thread")
  # Threads: executors, mailboxes and couriers of workers; streams, polling, pools; the coordinator's loop and its disks.
  set(PENSTOCK_QUICK_TESTS
    worker_parts_test
    "worker_run_test:Drain.*:Equivalence.*UnderRandomDelays:ReplicasRun.UnderRandomDelays*:Resume.SlowDisk*:Resume.StuckDisk*:RunErrors.*:SnapshotRun.*"
    services_rpc_test
    services_http_test
    services_transport_test
    services_worker_test
    services_coordinator_test)
endif()
add_custom_target(quick_tests)
