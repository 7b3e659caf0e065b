#include "tests/job/jobs.h"

#include "base/check.h"
#include "job/yaml/yaml.h"

namespace penstock {

std::string GoodJobWith(const std::string& from, const std::string& to) {
  std::string text = kGoodJobYaml;
  const size_t place = text.find(from);
  PENSTOCK_CHECK(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

v1::JobSpec GoodJob() {
  const absl::StatusOr<v1::JobSpec> job = ParseJobYaml(kGoodJobYaml, "good.yaml");
  PENSTOCK_CHECK(job.ok());
  return *job;
}

}  // namespace penstock
