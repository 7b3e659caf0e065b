// ClusterFixture: a coordinator and two workers as processes, with certificates, and the command line to speak to them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/services/cli/job_directory.h"

namespace penstock {

using Json = nlohmann::ordered_json;

inline constexpr std::chrono::seconds kMinute(60);

class ClusterFixture : public ::testing::Test {
 protected:
  void SetUp() override;

  // On `listen`, until it says that it serves; with the state of an earlier one, if there was one.
  void StartCoordinator(const std::string& listen);
  // `more`: flags of its own; --checkpoint-root takes the place of the directory of the job.
  void StartWorker(std::vector<std::string> more = {});
  // Again, under its name. REQUIRES: it was started, and its process has ended.
  void RestartWorker(size_t worker);

  // `penstock` with these arguments and the flags that reach the coordinator.
  std::vector<std::string> Reaching(std::vector<std::string> arguments) const;
  // The same, to its end.
  ProcessResult Run(std::vector<std::string> arguments) const {
    return RunProcess(Reaching(std::move(arguments)));
  }
  // The same with --json, which must succeed.
  Json RunJson(std::vector<std::string> arguments) const;

  std::string certificates(const std::string& role = "") const {
    return job_.path("certificates/" + role);
  }

  void MakeCertificates();
  // More flags of the coordinator.
  std::vector<std::string> coordinator_flags_;

  std::unique_ptr<Process> MakeWorker(size_t worker) const;

  JobDirectory job_;
  std::string address_;
  std::unique_ptr<Process> coordinator_;
  std::vector<std::unique_ptr<Process>> workers_;  // worker-0, worker-1, ...
  std::vector<std::vector<std::string>> worker_flags_;
};

}  // namespace penstock
