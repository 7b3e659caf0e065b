// Fault points: named places (fault_point_list.h) at which a test makes this process die, wait or fail.
//
// They are built with the CMake option PENSTOCK_FAULT_POINTS (preset `faults`) only. Otherwise the macros are nothing, and
// the programs contain none of the names. A program that has them reads the environment variable PENSTOCK_FAULT_POINTS
// when it starts:
//
//   PENSTOCK_FAULT_POINTS=file.before_fsync=kill@3,store.before_commit=sleep:500
//
// NAME=ACTION does it at every hit of the point, NAME=ACTION@N at hit N alone, counted from 1 over the life of the
// process. The actions:
//
//   kill      SIGKILL: nothing is flushed, no destructor runs
//   sleep:MS  the thread waits, for an hour at most
//   fail      the place returns Unavailable, where it can return an error
//   full      the place returns ResourceExhausted, where it can return an error
//   note      a line on standard error
//
// Every action but sleep at every hit also writes that line, "fault point NAME: hit N: ACTION", so that a test knows what
// happened: of notes at every hit, those of hits 1, 2, 4, 8 and so on.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/fault_point_list.h"
#include "base/status.h"
#include "configured/fault_points.h"

namespace penstock {

enum class FaultPoint : int32_t {
#define PENSTOCK_ROW(identifier, name, ability) identifier,
  PENSTOCK_FAULT_POINT_LIST(PENSTOCK_ROW)
#undef PENSTOCK_ROW
};

#define PENSTOCK_ROW(identifier, name, ability) +1
inline constexpr int32_t kFaultPoints = 0 PENSTOCK_FAULT_POINT_LIST(PENSTOCK_ROW);
#undef PENSTOCK_ROW

// The environment variable that a program reads.
inline constexpr char kFaultPointsVariable[] = "PENSTOCK_FAULT_POINTS";

absl::string_view NameOf(FaultPoint point);

struct FaultAction {
  enum class Kind : uint8_t { kNote, kKill, kSleep, kFail, kFull };
  static constexpr absl::Duration kSleepMax = absl::Hours(1);

  Kind kind = Kind::kNote;
  absl::Duration sleep;     // of kSleep
  int64_t at_hit = kEvery;  // counted from 1

  static constexpr int64_t kEvery = 0;

  friend bool operator==(const FaultAction&, const FaultAction&) = default;
};

struct ArmedFault {
  FaultPoint point = {};
  FaultAction action;

  friend bool operator==(const ArmedFault&, const ArmedFault&) = default;
};

// Reads the variable's text; an empty one arms nothing. A point may be named once.
// Errors: InvalidArgument that says what is wrong, and which names or actions there are.
absl::StatusOr<std::vector<ArmedFault>> ParseFaultPoints(absl::string_view text);

// Counts hits and knows which action is due at which.
// Thread safety: all methods from any thread.
class FaultCounter {
 public:
  // Nothing is armed.
  FaultCounter() = default;
  // REQUIRES: `armed` names no point twice.
  explicit FaultCounter(const std::vector<ArmedFault>& armed);

  struct Hit {
    int64_t number = 0;
    const FaultAction* action = nullptr;  // null: nothing is due
    bool is_told = false;                 // writes its line
  };
  Hit Reach(FaultPoint point);

 private:
  struct Cell {
    bool is_armed = false;
    FaultAction action;
    std::atomic<int64_t> hits = 0;
  };
  std::array<Cell, kFaultPoints> cells_;
};

// Returns the error of an action that fails; OK of another one.
absl::Status ErrorOf(FaultPoint point, const FaultAction& action);

// What the macros call. Arms what the environment says; call it before any other thread runs, once.
// Errors: those of ParseFaultPoints, naming the variable.
absl::Status ArmFaultPoints();
// Does what is due. Returns an error if that is to fail.
absl::Status ReachFaultPoint(FaultPoint point);

}  // namespace penstock

#if PENSTOCK_FAULT_POINTS
// A place where the process may die or wait. `point`: an identifier of the list.
#define PENSTOCK_FAULT_POINT(point) \
  ::penstock::ReachFaultPoint(::penstock::FaultPoint::point).IgnoreError()
// The same, in a function that returns an absl::Status or StatusOr, and returns from it where the operation is to fail.
#define PENSTOCK_FAULT_POINT_STATUS(point) \
  PENSTOCK_RETURN_IF_ERROR(::penstock::ReachFaultPoint(::penstock::FaultPoint::point))
// At the start of a program: an absl::Status.
#define PENSTOCK_ARM_FAULT_POINTS() ::penstock::ArmFaultPoints()
#else
#define PENSTOCK_FAULT_POINT(point) static_cast<void>(0)
#define PENSTOCK_FAULT_POINT_STATUS(point) static_cast<void>(0)
#define PENSTOCK_ARM_FAULT_POINTS() ::absl::OkStatus()
#endif
