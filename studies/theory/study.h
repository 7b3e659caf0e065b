// Study: an experiment of arXiv 2606.03498, as a value: a table, charts, and what it says about the
// paper's claims.
//
// The studies themselves are in studies.h; the caller prints and stores the result.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "studies/theory/line_chart.h"

namespace penstock {

// Where a study runs: what it may not reach for by itself. Used by one thread, the study's own.
class StudyContext {
 public:
  virtual ~StudyContext() = default;

  // Calls `body` with every number below `count`, perhaps from several threads at once, and returns when
  // all are done. Errors: Cancelled if it was asked to stop; some calls are then left out.
  virtual absl::Status ForEach(int64_t count, const std::function<void(int64_t)>& body) = 0;
  // Announces the next part, and the calls of ForEach that the study makes in all.
  virtual void Announce(const std::string& what, int64_t calls_in_all) = 0;
};

// One after the other, in this thread, in silence.
class SerialContext : public StudyContext {
 public:
  absl::Status ForEach(int64_t count, const std::function<void(int64_t)>& body) override {
    for (int64_t i = 0; i < count; ++i) body(i);
    return absl::OkStatus();
  }
  void Announce(const std::string&, int64_t) override {}
};

using StudyCell = std::variant<int64_t, double, std::string>;

struct StudyTable {
  std::vector<std::string> columns;  // "final_mean": keys of JSON, headings of CSV
  std::vector<std::vector<StudyCell>> rows;
};

// A claim of the paper, and whether this run agrees.
struct Finding {
  std::string claim;
  bool agrees = false;
  std::string evidence;  // the figures
};

struct StudyChart {
  std::string name;  // "quadratic": part of a file name; empty for the only chart
  LineChart chart;   // bands are from the least to the greatest of the seeds
};

struct StudyResult {
  std::string title;
  std::vector<std::pair<std::string, StudyCell>> settings;
  StudyTable table;
  std::vector<StudyChart> charts;
  std::vector<Finding> findings;
};

}  // namespace penstock
