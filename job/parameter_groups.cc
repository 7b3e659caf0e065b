#include "job/parameter_groups.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/glob.h"
#include "base/status.h"
#include "job/keys/check_fields.h"
#include "job/keys/suggest.h"
#include "model/lora.h"
#include "model/parameter_groups.h"

namespace penstock {
namespace {

constexpr char kKey[] = "training.groups";

absl::Status CheckSaysOneThing(const std::string& key, const v1::ParameterGroupSpec& group) {
  if (!group.frozen() || (group.learning_rate_scale() == 1.0 && !group.has_weight_decay())) {
    return absl::OkStatus();
  }
  return InvalidKey(key,
                    "is frozen, so that no rate and no decay applies; leave out frozen, or "
                    "learning_rate_scale and weight_decay");
}

absl::Status CheckMatches(const std::string& key, const std::string& pattern,
                          const std::vector<std::string>& names) {
  const bool matches = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return MatchesGlob(pattern, name);
  });
  if (matches) return absl::OkStatus();
  return InvalidKey(
      key, absl::StrCat("is \"", pattern, "\", which matches no parameter; the nearest names are ",
                        absl::StrJoin(NearestNames(pattern, names), ", ")));
}

ParameterGroup GroupOf(const v1::ParameterGroupSpec& spec) {
  ParameterGroup group = {.pattern = spec.parameters(),
                          .rate_scale = spec.learning_rate_scale(),
                          .frozen = spec.frozen()};
  if (spec.has_weight_decay()) group.weight_decay = spec.weight_decay();
  return group;
}

}  // namespace

absl::Status ApplyGroupsOf(const v1::JobSpec& spec, ModelGraph& model) {
  const bool adapts = spec.model().has_lora();
  if (spec.training().groups().empty() && !adapts) return absl::OkStatus();
  const std::vector<std::string> names = ParameterNames(model);
  std::vector<ParameterGroup> groups;
  for (int i = 0; i < spec.training().groups_size(); ++i) {
    const v1::ParameterGroupSpec& group = spec.training().groups(i);
    const std::string key = absl::StrCat(kKey, "[", i, "]");
    PENSTOCK_RETURN_IF_ERROR(CheckMatches(key + ".parameters", group.parameters(), names));
    PENSTOCK_RETURN_IF_ERROR(CheckSaysOneThing(key, group));
    groups.push_back(GroupOf(group));
  }
  if (adapts) {
    groups.push_back({.pattern = absl::StrCat("*", kLoraA)});
    groups.push_back({.pattern = absl::StrCat("*", kLoraB)});
    groups.push_back({.pattern = "*", .frozen = true});
  }
  const absl::Status applied = ApplyGroups(groups, model);
  return applied.ok() ? applied : InvalidKey(kKey, applied.message());
}

}  // namespace penstock
