#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "schedule/text.h"
#include "schedule/text_words.h"

namespace penstock {
namespace {

constexpr int32_t kStagesMax = 1 << 16;
constexpr absl::string_view kFieldsExpected =
    "one of name=, weights=, complete=, range=, stages=, pipelines=, replicas=, rounds=, "
    "stream=, recompute=, group=";

class ScheduleParser {
 public:
  explicit ScheduleParser(absl::string_view text) : text_(text) {}

  absl::StatusOr<Schedule> Parse() {
    for (const absl::string_view line : absl::StrSplit(text_, '\n')) {
      ++line_number_;
      line_ = absl::StripSuffix(line, "\r");
      at_ = 0;
      if (absl::StartsWith(line_, kScheduleTextHeader)) {
        PENSTOCK_RETURN_IF_ERROR(ParseHeader());
      } else if (!absl::StripAsciiWhitespace(line_).empty() && line_[0] != '#') {
        PENSTOCK_RETURN_IF_ERROR(ParseProgram());
      }
    }
    PENSTOCK_RETURN_IF_ERROR(InferWorkers());
    PENSTOCK_RETURN_IF_ERROR(WireStages());
    InferRange();
    PENSTOCK_RETURN_IF_ERROR(CheckRange(schedule_.range));
    return std::move(schedule_);
  }

 private:
  absl::Status Error(size_t at, absl::string_view token, absl::string_view expected) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", line_number_, ", column ", at + 1,
                                                   ": \"", token, "\": expected ", expected));
  }

  // Takes the text from here to the next of `ends`.
  absl::string_view Take(absl::string_view ends) {
    const size_t end = std::min(line_.find_first_of(ends, at_), line_.size());
    const absl::string_view token = line_.substr(at_, end - at_);
    at_ = end;
    return token;
  }
  void SkipSpaces() {
    while (at_ < line_.size() && absl::ascii_isspace(line_[at_])) ++at_;
  }

  // Two numbers up to kMicrobatchMax with a '+' between them.
  static bool ParsePair(absl::string_view text, int64_t& first, int64_t& second,
                        char separator = '+') {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(text, absl::MaxSplits(separator, 1));
    const auto fits = [](int64_t number) { return number >= 0 && number <= kMicrobatchMax; };
    return absl::SimpleAtoi(parts.first, &first) && absl::SimpleAtoi(parts.second, &second) &&
           fits(first) && fits(second);
  }

  template <typename TypedId>
  static bool ParseIds(absl::string_view text, std::vector<TypedId>& ids) {
    for (const absl::string_view part : absl::StrSplit(text, ',')) {
      if (!absl::SimpleAtoi(part, &ids.emplace_back().value) || ids.back().value < 0 ||
          ids.back().value >= kStagesMax || ids.size() > kStagesMax) {
        return false;
      }
    }
    return true;
  }

  absl::Status ParseHeader() {
    if (has_header_ || !schedule_.programs.empty()) {
      return Error(0, kScheduleTextHeader, "one header, before the actions");
    }
    has_header_ = true;
    at_ = kScheduleTextHeader.size();
    for (SkipSpaces(); at_ < line_.size(); SkipSpaces()) {
      const size_t start = at_;
      const absl::string_view field = Take(" \t");
      // Only a field with a '=' is one: of a value that is missing StrSplit would make no parts at all.
      const size_t equals = field.find('=');
      const absl::string_view expected =
          equals == absl::string_view::npos
              ? kFieldsExpected
              : ParseField(field.substr(0, equals), field.substr(equals + 1));
      if (!expected.empty()) return Error(start, field, expected);
    }
    return absl::OkStatus();
  }

  // Returns what was expected instead, or nothing.
  absl::string_view ParseField(absl::string_view key, absl::string_view value) {
    if (key == "name") {
      schedule_.name = std::string(value);
      const bool valid =
          !value.empty() && std::all_of(value.begin(), value.end(), IsScheduleNameCharacter);
      return valid ? "" : "a name of letters, digits, '.', '_' and '-'";
    }
    if (key == "weights") {
      const absl::StatusOr<WeightPolicy> policy = ParseWeightPolicy(value);
      if (!policy.ok()) {
        return "weights=single, stash, delayed:<microbatches>:<versions>, "
               "predicted:<microbatches>, "
               "aligned:<microbatches>, corrected, or drawn:<versions>:<seed>";
      }
      schedule_.weight_policy = *policy;
      return "";
    }
    if (key == "complete") {
      has_completeness_ = true;
      for (const Completeness each : {Completeness::kTrain, Completeness::kEvaluate}) {
        schedule_.completeness = each;
        if (CompletenessName(each) == value) return "";
      }
      return "complete=train or complete=evaluate";
    }
    if (key == "range") {
      MicrobatchRange& range = schedule_.range;
      return ParsePair(value, range.first, range.count) && range.count > 0
                 ? ""
                 : "range=<first microbatch>+<count>, for example range=0+8";
    }
    if (key == "stages") {
      shape_.worker_of.clear();
      return ParseIds(value, shape_.worker_of)
                 ? ""
                 : "the worker of each stage, for example stages=0,1,2";
    }
    if (key == "pipelines") {
      int32_t& pipelines = shape_.pipelines;
      return absl::SimpleAtoi(value, &pipelines) && pipelines >= 1 && pipelines <= kStagesMax
                 ? ""
                 : "how many pipelines the stages make, for example pipelines=2";
    }
    if (key == "replicas") {
      return ParseReplicas(value) ? ""
                                  : "how many replicas each place has, for example replicas=3,1";
    }
    if (key == "rounds") {
      Topology::Rounds& rounds = shape_.rounds.emplace();
      has_recomputes_ = true;  // there and back it is known who does
      return ParsePair(value, rounds.microbatches, rounds.step, '/') && rounds.microbatches > 0 &&
                     rounds.step > 0
                 ? ""
                 : "rounds=<microbatches of a round>/<of a step>, for example rounds=4/8";
    }
    if (key == "stream") {
      shape_.weights_in_file = value == "file";
      shape_.streams_weights = value == "weights" || shape_.weights_in_file;
      return shape_.streams_weights ? ""
                                    : "what is streamed to the stages: stream=weights, or "
                                      "stream=file where the weights live in files";
    }
    if (key == "recompute") {
      recomputes_.clear();
      has_recomputes_ = true;
      return ParseIds(value, recomputes_)
                 ? ""
                 : "the stages that do their forward again, for example recompute=0,1";
    }
    if (key == "group") return ParseGroup(value);
    return kFieldsExpected;
  }

  bool ParseReplicas(absl::string_view value) {
    shape_.replicas.clear();
    int32_t together = 0;
    for (const absl::string_view part : absl::StrSplit(value, ',')) {
      int32_t count = 0;
      if (!absl::SimpleAtoi(part, &count) || count < 1 || count > kStagesMax - together) {
        return false;
      }
      shape_.replicas.push_back(count);
      together += count;
    }
    return true;
  }

  absl::string_view ParseGroup(absl::string_view value) {
    const std::vector<absl::string_view> parts = absl::StrSplit(value, ':');
    ReduceGroup group;
    const bool of_weights = parts[0] == QuantityName(ReduceGroup::Quantity::kWeight);
    const auto* const operation =
        std::find_if(std::begin(kReduceOperations), std::end(kReduceOperations),
                     [&](ReduceGroup::Operation each) {
                       return parts.size() == 3 && parts[1] == OperationName(each);
                     });
    const bool valid = operation != std::end(kReduceOperations) &&
                       (of_weights || parts[0] == QuantityName(ReduceGroup::Quantity::kGradient)) &&
                       ParseIds(parts[2], group.stages);
    if (!valid) {
      return "group=<gradient|weight>:<sum|mean|copy>:<stages>, for example "
             "group=gradient:sum:0,3";
    }
    if (of_weights) group.quantity = ReduceGroup::Quantity::kWeight;
    group.operation = *operation;
    groups_.push_back(std::move(group));
    return "";
  }

  absl::Status ParseProgram() {
    Program& program = schedule_.programs.emplace_back();
    ActionList* list = &program.prologue;
    for (SkipSpaces(); at_ < line_.size(); SkipSpaces()) {
      const char next = line_[at_];
      if (next == ',') {
        ++at_;
      } else if (next == '[') {
        if (list != &program.prologue) return Error(at_, "[", "one period [...] in a line at most");
        list = &program.period;
        ++at_;
      } else if (next == ']') {
        const size_t start = at_++;
        const absl::string_view end = Take(", \t");
        const bool valid = absl::StartsWith(end, "*") &&
                           ParsePair(end.substr(1), program.repeats, program.shift) &&
                           program.repeats <= kMicrobatchMax / std::max<int64_t>(1, program.shift);
        if (list != &program.period || !valid) {
          return Error(start, absl::StrCat("]", end), "a period [...]*<copies>+<microbatches>");
        }
        list = &program.epilogue;
      } else {
        PENSTOCK_RETURN_IF_ERROR(ParseCell(*list));
      }
    }
    if (list == &program.period) return Error(line_.size(), "", "]*<copies>+<microbatches>");
    return absl::OkStatus();
  }

  absl::Status ParseCell(ActionList& list) {
    const size_t start = at_;
    const absl::string_view token = Take(",[] \t");
    if (++actions_ > kScheduleTextActionsMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("line ", line_number_, ": more than ", kScheduleTextActionsMax, " actions"));
    }
    // B is not an action; it reads like I, and W follows.
    const bool whole_backward =
        token.find('B') != absl::string_view::npos && token.find('_') == absl::string_view::npos;
    std::string text(token);
    if (whole_backward) std::replace(text.begin(), text.end(), 'B', 'I');
    const absl::StatusOr<Action> action = ParseAction(text);
    if (!action.ok()) return Error(start, token, ExpectedBy(action.status()));
    if (action->index >= kStagesMax || action->microbatch >= kMicrobatchMax) {
      return Error(
          start, token,
          absl::StrCat("a stage below ", kStagesMax, " and a microbatch below ", kMicrobatchMax));
    }
    list.push_back(*action);
    if (whole_backward)
      list.push_back({ActionKind::kBackwardWeight, action->index, action->microbatch});
    return absl::OkStatus();
  }

  // The end of a message of ParseAction.
  static std::string ExpectedBy(const absl::Status& status) {
    constexpr absl::string_view kMark = "expected ";
    const absl::string_view message = status.message();
    return std::string(message.substr(message.find(kMark) + kMark.size()));
  }

  template <typename Function>
  void ForEachAction(Function f) const {
    for (size_t worker = 0; worker < schedule_.programs.size(); ++worker) {
      const Program& program = schedule_.programs[worker];
      for (const ActionList* list : {&program.prologue, &program.period, &program.epilogue}) {
        const bool repeated = list == &program.period;
        for (const Action& action : *list) f(static_cast<int32_t>(worker), action, repeated);
      }
    }
  }

  absl::Status InferWorkers() {
    std::vector<WorkerId>& worker_of = shape_.worker_of;
    if (schedule_.programs.empty()) {
      return absl::InvalidArgumentError("the schedule has no actions");
    }
    if (!worker_of.empty()) return absl::OkStatus();
    ForEachAction([&worker_of](int32_t worker, const Action& action, bool) {
      if (!HasMicrobatch(action.kind)) return;
      if (action.index >= static_cast<int32_t>(worker_of.size())) {
        worker_of.resize(action.index + 1, WorkerId(-1));
      }
      WorkerId& holder = worker_of[action.index];
      if (holder.value < 0) holder = WorkerId(worker);
    });
    const auto absent = std::find(worker_of.begin(), worker_of.end(), WorkerId(-1));
    if (absent == worker_of.end()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "no worker has an action of stage ", absent - worker_of.begin(), " of ", worker_of.size()));
  }

  absl::Status WireStages() {
    Topology& topology = schedule_.topology;
    PENSTOCK_ASSIGN_OR_RETURN(topology, Wire(shape_));
    topology.workers = static_cast<int32_t>(schedule_.programs.size());
    topology.groups = std::move(groups_);
    if (!has_recomputes_) InferRecomputes();
    if (shape_.rounds.has_value() && !recomputes_.empty()) {
      return absl::InvalidArgumentError(
          "which stages recompute is not to be said where pipelines go there and back");
    }
    const bool ascending = std::adjacent_find(recomputes_.begin(), recomputes_.end(),
                                              std::greater_equal<>()) == recomputes_.end();
    if (!recomputes_.empty() && (!ascending || recomputes_.back().value >= topology.stages())) {
      return absl::InvalidArgumentError(
          absl::StrCat("the stages that recompute must be some of the ", topology.stages(),
                       " stages, in ascending order"));
    }
    topology.Recompute(recomputes_);
    return absl::OkStatus();
  }

  void InferRecomputes() {
    std::set<StageId> recomputes;
    ForEachAction([&](int32_t, const Action& action, bool) {
      if (action.kind == ActionKind::kRecompute) recomputes.insert(action.stage());
    });
    recomputes_.assign(recomputes.begin(), recomputes.end());
  }

  void InferRange() {
    int64_t first = std::numeric_limits<int64_t>::max();
    int64_t last = -1;
    bool has_backward = false;
    ForEachAction([&](int32_t worker, const Action& action, bool repeated) {
      has_backward |= action.kind == ActionKind::kBackwardInput;
      if (action.kind != ActionKind::kForward) return;
      const Program& program = schedule_.programs[worker];
      const int64_t copies_after = repeated ? std::max<int64_t>(program.repeats - 1, 0) : 0;
      first = std::min(first, action.microbatch);
      last = std::max(last, action.microbatch + copies_after * program.shift);
    });
    if (!has_completeness_ && !has_backward) schedule_.completeness = Completeness::kEvaluate;
    if (schedule_.range.count == 0 && last >= first) schedule_.range = {first, last - first + 1};
    if (schedule_.name.empty()) schedule_.name = "text";
  }

  absl::string_view text_;
  Schedule schedule_;
  TopologyShape shape_;
  std::vector<ReduceGroup> groups_;
  std::vector<StageId> recomputes_;
  bool has_header_ = false;
  bool has_completeness_ = false;
  bool has_recomputes_ = false;
  int64_t actions_ = 0;
  int line_number_ = 0;
  absl::string_view line_;
  size_t at_ = 0;  // in line_
};

}  // namespace

absl::StatusOr<Schedule> ParseSchedule(absl::string_view text) {
  return ScheduleParser(text).Parse();
}

std::string NoteOnOldNames(absl::string_view text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "#") || !absl::StrContains(line, kOldUpdateName)) continue;
    return absl::StrCat("the action ", kOldUpdateName, " is called ",
                        ActionName(ActionKind::kUpdate),
                        " now; the next version will not know the old name");
  }
  return "";
}

}  // namespace penstock
