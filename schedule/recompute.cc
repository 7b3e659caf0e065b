#include "schedule/recompute.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace penstock {
namespace {

constexpr size_t kQuotedCharactersMax = 64;  // of what was given, in an error

}  // namespace

absl::StatusOr<RecomputeChoice> ParseRecompute(absl::string_view text) {
  RecomputeChoice choice;
  if (text == "none") return choice;
  if (text == "all") {
    choice.all = true;
    return choice;
  }
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    if (!absl::SimpleAtoi(part, &choice.places.emplace_back()) || choice.places.back() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("is \"", text.substr(0, kQuotedCharactersMax),
                       "\"; expected none, all, or places of stages in their pipeline with commas "
                       "between them, such as 0,2"));
    }
  }
  std::vector<int32_t>& places = choice.places;
  std::sort(places.begin(), places.end());
  const auto twice = std::adjacent_find(places.begin(), places.end());
  if (twice == places.end()) return choice;
  return absl::InvalidArgumentError(absl::StrCat("names stage ", *twice, " twice"));
}

std::string TextOf(const RecomputeChoice& choice) {
  if (choice.none()) return "none";
  return choice.all ? "all" : absl::StrJoin(choice.places, ",");
}

absl::Status CheckPlaces(const RecomputeChoice& choice, int32_t depth) {
  if (choice.places.empty() || choice.places.back() < depth) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "names stage ", choice.places.back(), ", but the pipeline has ", depth,
      depth == 1 ? " stage; 0" : absl::StrCat(" stages; 0 to ", depth - 1), " would do"));
}

std::vector<StageId> ChosenStages(const RecomputeChoice& choice, const Topology& topology) {
  std::vector<StageId> stages;
  if (choice.none() || topology.form == Topology::Form::kThereAndBack) return stages;
  for (int32_t id = 0; id < topology.stages(); ++id) {
    if (choice.Has(topology[StageId(id)].place)) stages.emplace_back(id);
  }
  return stages;
}

}  // namespace penstock
