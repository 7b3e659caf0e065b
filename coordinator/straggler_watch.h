// StragglerWatch: which worker of a run has become slow, by its own passes before.
//
// The time of a step does not tell, because all workers wait for the slowest. The time of a worker's passes does: nothing
// that it waits for is in it. The watch takes the workers' reports while they train, every few seconds, and puts the
// passes of each worker into windows. The time of a window's passes is held against what as many passes of the same
// kinds took before, kind by kind the median of the worker's earlier windows. All passes of a window count together, not
// their median, since a worker that gets a fifth of its CPU does most short passes as fast as ever and stands still in a
// few.
//
// A worker is slow after two windows in a row that took 1.5 times as long as before, unless the others have all become
// slow as well: then it is what they have in common, such as longer samples. It is no longer slow after six windows in a
// row below 1.25 times. So one long pass says nothing, and a worker that is slow now and then is told of once. Windows in
// which a worker is slow do not count as its earlier ones.
//
// A worker that is slow from the start has no faster passes to be held against; its steps show it (run_feedback.h).
//
// A state machine without clock or I/O; thread-compatible.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "coordinator/effects.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

class StragglerWatch {
 public:
  // A window is at least this long, has at least this many passes, and ends with an answer of the worker.
  static constexpr int64_t kWindowNs = 5'000'000'000;
  static constexpr int64_t kPassesMin = 4;
  // Earlier windows: this many are needed, and the last kEarlierMax are kept, which is ten minutes.
  static constexpr size_t kEarlierMin = 3;
  static constexpr size_t kEarlierMax = 120;
  // Times as long as before.
  static constexpr double kSlowFrom = 1.5;
  static constexpr double kBackBelow = 1.25;
  // Windows in a row.
  static constexpr int kWindowsSlow = 2;
  static constexpr int kWindowsBack = 6;

  struct News {
    int32_t worker = 0;  // its index in the plan
    bool is_slow = false;
    std::string text;  // for people, to follow the worker's name
  };

  // An attempt begins. What workers with the same stages as before have shown stays; one that was slow and has other
  // stages now is taken to be as slow as it was, so that it can be told when it is back.
  void Begin(const v1::Plan& plan);

  // Takes the reports of all workers of the plan, with none of those that did not answer. REQUIRES: they are of the
  // workers' own stages (report_check.h).
  std::vector<News> OnReports(absl::Span<const StageReports> workers, Now now);

  // Returns the latest reports of all stages, with the times of passes since each worker's last whole window began
  // (TimesSince, planner/job/replan.h).
  StageReports Recent() const;
  // Returns, by name, how many times as long as before the passes of each worker's last window took; 1 until it is known.
  std::map<std::string, double> SlowRatios() const;

 private:
  // A stage, and the name of an action.
  using Kind = std::pair<int32_t, std::string>;
  struct Passes {
    int64_t count = 0;
    double seconds = 0;
  };
  struct Held {
    int32_t stage = 0;
    int32_t first_layer = 0;
    int32_t layers = 0;
    friend bool operator==(const Held&, const Held&) = default;
  };
  struct Worker {
    std::string name;
    std::vector<Held> stages;
    // The seconds of a pass in earlier windows.
    std::map<Kind, std::deque<double>> earlier;
    // Its first windows with these stages take this many times as long as if it were not slow.
    double slow_at_first = 1.0;
    bool is_slow = false;
    int windows_of_turn = 0;  // in a row that speak for a turn
    // Of the last whole window.
    std::optional<double> ratio;
    double pass_s = 0;
    // Its reports when the last whole window began, when the one under way did, and now.
    StageReports last_begun, begun, latest;
    std::optional<int64_t> begun_ns;
  };

  // Returns the passes between two reports; none if they are not of one run.
  static std::optional<std::map<Kind, Passes>> PassesBetween(const StageReports& from,
                                                             const StageReports& to);
  // Ends the worker's window, if it may. Returns whether it did and its ratio is known.
  static bool EndWindow(Worker& worker, const StageReports& reports, Now now);
  static bool Measure(Worker& worker, const std::map<Kind, Passes>& passes);
  // `ratios`: of all workers that have one, with their indices, in ascending order.
  std::optional<News> Judge(int32_t index, absl::Span<const std::pair<double, int32_t>> ratios);

  int32_t stages_ = 0;
  std::vector<Worker> workers_;  // by index in the plan
};

}  // namespace penstock
