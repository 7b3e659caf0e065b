#include "base/fault_points.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"

namespace penstock {
namespace {

enum class Ability : uint8_t { kEnds, kFails };

struct Row {
  absl::string_view name;
  Ability ability;
};

constexpr std::array<Row, kFaultPoints> kRows = {{
#define PENSTOCK_ROW(identifier, name, ability) {name, Ability::ability},
    PENSTOCK_FAULT_POINT_LIST(PENSTOCK_ROW)
#undef PENSTOCK_ROW
}};

constexpr absl::string_view kActions =
    "kill, sleep:MILLISECONDS, fail, full or note, with @HIT behind it for one hit alone";

absl::string_view AreaOf(absl::string_view name) { return name.substr(0, name.find('.')); }

// Returns the names of the area of `typed`, or all areas if there is no such one.
std::string NamesNear(absl::string_view typed) {
  std::vector<absl::string_view> names;
  std::vector<absl::string_view> areas;
  for (const Row& row : kRows) {
    if (AreaOf(row.name) == AreaOf(typed)) names.push_back(row.name);
    if (areas.empty() || areas.back() != AreaOf(row.name)) areas.push_back(AreaOf(row.name));
  }
  if (!names.empty()) {
    return absl::StrCat("those of ", AreaOf(typed), " are ", absl::StrJoin(names, ", "));
  }
  std::sort(areas.begin(), areas.end());
  areas.erase(std::unique(areas.begin(), areas.end()), areas.end());
  return absl::StrCat("names begin with one of ", absl::StrJoin(areas, ".*, "), ".*");
}

std::optional<FaultPoint> FindPoint(absl::string_view name) {
  for (int32_t i = 0; i < kFaultPoints; ++i) {
    if (kRows[i].name == name) return static_cast<FaultPoint>(i);
  }
  return std::nullopt;
}

bool Fails(FaultAction::Kind kind) {
  return kind == FaultAction::Kind::kFail || kind == FaultAction::Kind::kFull;
}

absl::string_view NameOf(FaultAction::Kind kind) {
  switch (kind) {
    case FaultAction::Kind::kNote:
      return "note";
    case FaultAction::Kind::kKill:
      return "kill";
    case FaultAction::Kind::kSleep:
      return "sleep";
    case FaultAction::Kind::kFail:
      return "fail";
    case FaultAction::Kind::kFull:
      return "full";
  }
  return "";
}

absl::StatusOr<FaultAction> ParseAction(absl::string_view text) {
  FaultAction action;
  if (const size_t at = text.find('@'); at != absl::string_view::npos) {
    const absl::string_view hit = text.substr(at + 1);
    if (!absl::SimpleAtoi(hit, &action.at_hit) || action.at_hit < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected the number of a hit, 1 or more, behind @, got \"", hit, "\""));
    }
    text = text.substr(0, at);
  }
  constexpr absl::string_view kSleep = "sleep:";
  if (absl::StartsWith(text, kSleep)) {
    const absl::string_view number = text.substr(kSleep.size());
    int64_t milliseconds = 0;
    if (!absl::SimpleAtoi(number, &milliseconds) || milliseconds < 0 ||
        absl::Milliseconds(milliseconds) > FaultAction::kSleepMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected milliseconds, ", absl::FormatDuration(FaultAction::kSleepMax),
                       " at most, behind sleep:, got \"", number, "\""));
    }
    action.kind = FaultAction::Kind::kSleep;
    action.sleep = absl::Milliseconds(milliseconds);
    return action;
  }
  for (const auto kind : {FaultAction::Kind::kNote, FaultAction::Kind::kKill,
                          FaultAction::Kind::kFail, FaultAction::Kind::kFull}) {
    if (text != NameOf(kind)) continue;
    action.kind = kind;
    return action;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no action \"", text, "\"; expected ", kActions));
}

absl::StatusOr<ArmedFault> ParseOne(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('=', 1));
  const std::optional<FaultPoint> point = FindPoint(parts.first);
  if (!point.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no fault point \"", parts.first, "\"; ", NamesNear(parts.first)));
  }
  const absl::StatusOr<FaultAction> action = ParseAction(parts.second);
  if (!action.ok()) return Annotate(action.status(), parts.first);
  const Ability ability = kRows[static_cast<int32_t>(*point)].ability;
  if (Fails(action->kind) && ability != Ability::kFails) {
    return absl::InvalidArgumentError(
        absl::StrCat(parts.first, ": this place returns no error; expected kill, sleep or note"));
  }
  return ArmedFault{*point, *action};
}

// One write, so that lines of several threads and processes stay whole, and so that a process that dies has told.
void Tell(FaultPoint point, int64_t number, const FaultAction& action) {
  const std::string line = absl::StrCat("fault point ", NameOf(point), ": hit ", number, ": ",
                                        NameOf(action.kind), "\n");
  // A test that cannot be told misses the line.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

// Of this process. Never deleted: threads reach points until the process is gone.
std::atomic<FaultCounter*> armed_faults = nullptr;

}  // namespace

absl::string_view NameOf(FaultPoint point) { return kRows[static_cast<int32_t>(point)].name; }

absl::StatusOr<std::vector<ArmedFault>> ParseFaultPoints(absl::string_view text) {
  std::vector<ArmedFault> armed;
  if (text.empty()) return armed;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    PENSTOCK_ASSIGN_OR_RETURN(const ArmedFault fault, ParseOne(part));
    const bool again = std::any_of(armed.begin(), armed.end(), [&](const ArmedFault& other) {
      return other.point == fault.point;
    });
    if (again) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(fault.point), ": is named twice; expected one action"));
    }
    armed.push_back(fault);
  }
  return armed;
}

FaultCounter::FaultCounter(const std::vector<ArmedFault>& armed) {
  for (const ArmedFault& fault : armed) {
    Cell& cell = cells_[static_cast<int32_t>(fault.point)];
    cell.is_armed = true;
    cell.action = fault.action;
  }
}

FaultCounter::Hit FaultCounter::Reach(FaultPoint point) {
  Cell& cell = cells_[static_cast<int32_t>(point)];
  const int64_t number = cell.hits.fetch_add(1, std::memory_order_relaxed) + 1;
  const bool every = cell.action.at_hit == FaultAction::kEvery;
  if (!cell.is_armed || (!every && number != cell.action.at_hit)) return {.number = number};
  bool is_told = true;
  if (every && cell.action.kind == FaultAction::Kind::kSleep) is_told = false;
  if (every && cell.action.kind == FaultAction::Kind::kNote) is_told = (number & (number - 1)) == 0;
  return {.number = number, .action = &cell.action, .is_told = is_told};
}

absl::Status ErrorOf(FaultPoint point, const FaultAction& action) {
  if (!Fails(action.kind)) return absl::OkStatus();
  const std::string text =
      absl::StrCat("the fault point ", NameOf(point), " of a test makes this fail");
  return action.kind == FaultAction::Kind::kFull ? absl::ResourceExhaustedError(text)
                                                 : absl::UnavailableError(text);
}

absl::Status ArmFaultPoints() {
  const char* const text = std::getenv(kFaultPointsVariable);
  if (text == nullptr) return absl::OkStatus();
  const absl::StatusOr<std::vector<ArmedFault>> armed = ParseFaultPoints(text);
  if (!armed.ok()) return Annotate(armed.status(), kFaultPointsVariable);
  armed_faults.store(std::make_unique<FaultCounter>(*armed).release(), std::memory_order_release);
  return absl::OkStatus();
}

absl::Status ReachFaultPoint(FaultPoint point) {
  FaultCounter* const counter = armed_faults.load(std::memory_order_acquire);
  if (counter == nullptr) return absl::OkStatus();
  const FaultCounter::Hit hit = counter->Reach(point);
  if (hit.action == nullptr) return absl::OkStatus();
  if (hit.is_told) Tell(point, hit.number, *hit.action);
  if (hit.action->kind == FaultAction::Kind::kKill) std::raise(SIGKILL);
  if (hit.action->kind == FaultAction::Kind::kSleep) absl::SleepFor(hit.action->sleep);
  return ErrorOf(point, *hit.action);
}

}  // namespace penstock
