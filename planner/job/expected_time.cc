#include "planner/job/expected_time.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace penstock {
namespace {

bool TrainAlike(const UpdatePattern& a, const UpdatePattern& b, bool one_method) {
  if (one_method) return a == b;
  return a.synchronous ? b.synchronous : a.method == b.method;
}

std::string TextOf(const JudgedCandidate& judged, const StepsFactor& factor) {
  if (judged.pattern.synchronous) return absl::StrFormat("%.4g s a step", judged.step_s);
  return absl::StrFormat(
      "%.4g s a step and %.3g times the steps of a method that drains (%.3g to %.3g)",
      judged.step_s, factor.expected(), factor.low(), factor.high());
}

std::string SourceText(int runs) {
  if (runs == 0) return "no job of this kind has run";
  return absl::StrCat(runs, runs == 1 ? " run" : " runs", " of such jobs told it");
}

}  // namespace

double ExpectedChoice::SecondsOf(int at) const {
  const auto found = times.find(at);
  return found == times.end() ? std::numeric_limits<double>::infinity() : found->second.seconds;
}

ExpectedChoice ChooseByExpectedTime(const JobPlan& plan, absl::Span<const int> eligible,
                                    const StepsToLoss& model, const std::string& setup,
                                    double progress, bool one_method) {
  ExpectedChoice choice;
  for (const int at : eligible) {
    const JudgedCandidate& judged = plan.candidates[at];
    const StepsFactor factor = model.Predict(judged.pattern, setup, progress);
    choice.times[at] = {.factor = factor, .seconds = judged.step_s * factor.expected()};
    if (choice.SecondsOf(at) < choice.SecondsOf(choice.candidate)) choice.candidate = at;
  }
  const JudgedCandidate& best = plan.candidates[choice.candidate];
  int next = -1;  // the best that trains otherwise
  for (const int at : eligible) {
    if (TrainAlike(best.pattern, plan.candidates[at].pattern, one_method)) continue;
    if (choice.SecondsOf(at) < choice.SecondsOf(next)) next = at;
  }
  choice.reason = absl::StrCat("the expected time to the same loss: ",
                               TextOf(best, choice.times.at(choice.candidate).factor));
  if (next >= 0) {
    const JudgedCandidate& judged = plan.candidates[next];
    absl::StrAppend(&choice.reason, ", against ", NameOf(judged.candidate), " with ",
                    TextOf(judged, choice.times.at(next).factor));
  }
  absl::StrAppend(&choice.reason, "; ", SourceText(model.RunsOf(setup)));
  return choice;
}

}  // namespace penstock
