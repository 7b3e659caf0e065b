// Small models other than the GPT: of every family whose layers can be this small, and graphs that exist only as YAML.
#pragma once

#include <ostream>
#include <string>

#include "absl/types/span.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

struct TestModel {
  const char* name;
  const char* yaml;                    // of the job's key `model`
  const char* data = "synthetic: {}";  // of the job's key `data`
};
inline std::ostream& operator<<(std::ostream& out, const TestModel& model) {
  return out << model.name;
}

absl::Span<const TestModel> TestModels();

// 3 steps of 4 microbatches of 2 samples, with momentum, and a validation behind the second.
v1::JobSpec JobOf(const TestModel& model, const std::string& method);

}  // namespace penstock
