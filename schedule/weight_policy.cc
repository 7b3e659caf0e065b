#include "schedule/weight_policy.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "schedule/schedule.h"

namespace penstock {
namespace {

// These stand for a number in a form.
constexpr absl::string_view kBatch = "<microbatches>";
constexpr absl::string_view kLag = "<versions>";
constexpr absl::string_view kSeed = "<seed>";

// Sets the number that `place` stands for; words of a form must be there as they are.
bool ReadPart(absl::string_view place, absl::string_view text, WeightPolicy& policy) {
  if (place == kBatch) {
    return absl::SimpleAtoi(text, &policy.batch) && policy.batch >= 1 &&
           policy.batch < kMicrobatchMax;
  }
  if (place == kLag) {
    return absl::SimpleAtoi(text, &policy.lag) && policy.lag >= (policy.draws() ? 0 : 1) &&
           policy.lag < kMicrobatchMax;
  }
  if (place == kSeed) return absl::SimpleAtoi(text, &policy.seed);
  return place == text;
}

bool Read(absl::string_view text, WeightPolicy& policy) {
  const std::vector<absl::string_view> places = absl::StrSplit(policy.weights->form, ':');
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  if (parts.size() != places.size()) return false;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!ReadPart(places[i], parts[i], policy)) return false;
  }
  return text == ToString(policy);
}

}  // namespace

absl::string_view Weights::Always(bool) { return ""; }
void Weights::NoNumbers(const UpdateShape&, WeightPolicy&) {}
int64_t Weights::Current(const StageVersions& stage) { return stage.current; }
int64_t Weights::NextForward(const StageVersions& stage, int64_t) {
  return stage.policy.weights->next_forward(stage);
}
int64_t Weights::CurrentToo(const StageVersions& stage, int64_t) { return stage.current; }
int64_t Weights::ForwardsToo(const StageVersions&, int64_t forward_version) {
  return forward_version;
}
int64_t Weights::WhatItReads(const StageVersions&, int64_t, int64_t version) { return version; }
bool Weights::EveryMicrobatch(const StageVersions&, int64_t) { return true; }
int64_t Weights::One(const WeightPolicy&, int64_t, int64_t) { return 1; }
void Weights::NoState(const StageVersions&, std::vector<int64_t>&) {}

std::string ToString(const WeightPolicy& policy) {
  return absl::StrReplaceAll(policy.weights->form, {{kBatch, absl::StrCat(policy.batch)},
                                                    {kLag, absl::StrCat(policy.lag)},
                                                    {kSeed, absl::StrCat(policy.seed)}});
}

absl::StatusOr<WeightPolicy> ParseWeightPolicy(absl::string_view text) {
  std::vector<absl::string_view> forms;
  for (const Weights* weights : kAllWeights) {
    WeightPolicy policy = {weights};
    if (Read(text, policy)) return policy;
    if (forms.empty() || forms.back() != weights->form) forms.push_back(weights->form);
  }
  const std::string last(forms.back());
  forms.pop_back();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\": expected ", absl::StrJoin(forms, ", "), ", or ", last));
}

}  // namespace penstock
