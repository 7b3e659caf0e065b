#include "coordinator/straggler_watch.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/job/replan.h"
#include "schedule/action.h"

namespace penstock {
namespace {

bool IsPass(const std::string& action) {
  return action == ActionName(ActionKind::kForward) ||
         action == ActionName(ActionKind::kRecompute) ||
         action == ActionName(ActionKind::kBackwardInput) ||
         action == ActionName(ActionKind::kBackwardWeight);
}

// REQUIRES: there are values.
double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void StragglerWatch::Begin(const v1::Plan& plan) {
  std::vector<Worker> before = std::exchange(workers_, {});
  const bool as_many_stages = std::exchange(stages_, plan.stages_size()) == stages_;
  for (const v1::StageAssignment& stage : plan.stages()) {
    const auto index = static_cast<size_t>(stage.worker_index());
    workers_.resize(std::max(workers_.size(), index + 1));
    workers_[index].name = stage.worker();
    workers_[index].stages.push_back(
        {.stage = stage.stage(), .first_layer = stage.first_layer(), .layers = stage.layers()});
  }
  for (Worker& worker : workers_) {
    const auto known = std::find_if(before.begin(), before.end(), [&](const Worker& earlier) {
      return earlier.name == worker.name;
    });
    if (known == before.end()) continue;
    if (as_many_stages && known->stages == worker.stages) {
      worker.earlier = std::move(known->earlier);
      worker.slow_at_first = known->slow_at_first;
    } else if (known->is_slow) {
      worker.slow_at_first = *known->ratio;
    } else {
      continue;
    }
    worker.is_slow = known->is_slow;
    worker.ratio = known->ratio;
  }
}

std::vector<StragglerWatch::News> StragglerWatch::OnReports(absl::Span<const StageReports> workers,
                                                            Now now) {
  std::vector<int32_t> measured;
  for (size_t i = 0; i < std::min(workers.size(), workers_.size()); ++i) {
    if (!workers[i].empty() && EndWindow(workers_[i], workers[i], now)) {
      measured.push_back(static_cast<int32_t>(i));
    }
  }
  // Only now, because each is judged beside the others.
  std::vector<std::pair<double, int32_t>> ratios;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].ratio.has_value()) ratios.emplace_back(*workers_[i].ratio, i);
  }
  std::sort(ratios.begin(), ratios.end());
  std::vector<News> news;
  for (const int32_t index : measured) {
    if (std::optional<News> turn = Judge(index, ratios)) news.push_back(*std::move(turn));
  }
  return news;
}

std::optional<std::map<StragglerWatch::Kind, StragglerWatch::Passes>> StragglerWatch::PassesBetween(
    const StageReports& from, const StageReports& to) {
  std::map<Kind, Passes> passes;
  const auto add = [&passes](const StageReports& reports, int sign) {
    for (const v1::StageReport& stage : reports) {
      for (const v1::ActionTime& action : stage.actions()) {
        if (!IsPass(action.action())) continue;
        Passes& of_kind = passes[{stage.stage(), action.action()}];
        of_kind.count += sign * action.count();
        of_kind.seconds += sign * action.seconds();
      }
    }
  };
  add(to, 1);
  add(from, -1);
  for (const auto& [kind, of_kind] : passes) {
    const bool can_be =
        of_kind.count >= 0 && of_kind.seconds >= 0.0 && std::isfinite(of_kind.seconds);
    if (!can_be) return std::nullopt;
  }
  std::erase_if(passes, [](const auto& entry) { return entry.second.count == 0; });
  return passes;
}

bool StragglerWatch::EndWindow(Worker& worker, const StageReports& reports, Now now) {
  worker.latest = reports;
  const std::optional<std::map<Kind, Passes>> passes = PassesBetween(worker.begun, reports);
  if (!worker.begun_ns.has_value() || !passes.has_value()) {
    worker.last_begun = worker.begun = reports;
    worker.begun_ns = now.monotonic_ns;
    return false;
  }
  int64_t count = 0;
  for (const auto& [kind, of_kind] : *passes) count += of_kind.count;
  if (now.monotonic_ns < *worker.begun_ns + kWindowNs || count < kPassesMin) return false;
  worker.last_begun = std::exchange(worker.begun, reports);
  worker.begun_ns = now.monotonic_ns;
  return Measure(worker, *passes);
}

bool StragglerWatch::Measure(Worker& worker, const std::map<Kind, Passes>& passes) {
  Passes measured;
  double before_s = 0;
  for (const auto& [kind, of_kind] : passes) {
    const std::deque<double>& earlier = worker.earlier[kind];
    if (earlier.size() < kEarlierMin) continue;
    measured.count += of_kind.count;
    measured.seconds += of_kind.seconds;
    before_s += static_cast<double>(of_kind.count) * MedianOf({earlier.begin(), earlier.end()});
  }
  const bool is_known = before_s > 0;
  if (is_known) {
    worker.ratio = measured.seconds / before_s;
    worker.pass_s = measured.seconds / static_cast<double>(measured.count);
  }
  const bool as_ever = is_known && !worker.is_slow && *worker.ratio < kSlowFrom;
  for (const auto& [kind, of_kind] : passes) {
    std::deque<double>& earlier = worker.earlier[kind];
    const double pass_s = of_kind.seconds / static_cast<double>(of_kind.count);
    if (earlier.size() < kEarlierMin) {
      earlier.push_back(pass_s / worker.slow_at_first);
    } else if (as_ever) {
      earlier.push_back(pass_s);
    }
    if (earlier.size() > kEarlierMax) earlier.pop_front();
  }
  return is_known;
}

std::optional<StragglerWatch::News> StragglerWatch::Judge(
    int32_t index, absl::Span<const std::pair<double, int32_t>> ratios) {
  Worker& worker = workers_[index];
  const double ratio = *worker.ratio;
  const bool has_others = ratios.size() > 1;
  const double least = ratios[has_others && ratios.front().second == index ? 1 : 0].first;
  const double most =
      ratios[ratios.size() - (has_others && ratios.back().second == index ? 2 : 1)].first;
  // How slow even the least slow of the others has become.
  const double all = has_others ? std::max(1.0, least) : 1.0;
  const bool speaks = worker.is_slow ? ratio < kBackBelow : ratio >= kSlowFrom * all;
  worker.windows_of_turn = speaks ? worker.windows_of_turn + 1 : 0;
  if (worker.windows_of_turn < (worker.is_slow ? kWindowsBack : kWindowsSlow)) return std::nullopt;
  worker.windows_of_turn = 0;
  worker.is_slow = !worker.is_slow;
  worker.slow_at_first = 1.0;
  std::string text =
      absl::StrFormat("is %s: a pass takes %.3g ms in the mean, %.2f times as long as before",
                      worker.is_slow ? "slow" : "no longer slow", 1e3 * worker.pass_s, ratio);
  if (worker.is_slow && has_others) {
    absl::StrAppendFormat(&text, "; those of the other workers take %.2f to %.2f times as long",
                          least, most);
  }
  return News{.worker = index, .is_slow = worker.is_slow, .text = std::move(text)};
}

StageReports StragglerWatch::Recent() const {
  StageReports recent;
  for (const Worker& worker : workers_) {
    for (v1::StageReport& stage : TimesSince(worker.last_begun, worker.latest)) {
      *recent.Add() = std::move(stage);
    }
  }
  return recent;
}

std::map<std::string, double> StragglerWatch::SlowRatios() const {
  std::map<std::string, double> ratios;
  for (const Worker& worker : workers_) {
    ratios[worker.name] = worker.ratio.value_or(1.0);
  }
  return ratios;
}

}  // namespace penstock
