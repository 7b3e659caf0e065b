#include "schedule/search/bound.h"

#include <algorithm>
#include <queue>
#include <utility>
#include <vector>

namespace penstock {
namespace {

struct Job {
  int64_t head_ns, duration_ns, tail_ns;
};

// The length of Jackson's preemptive schedule: always the job with the longest tail among those there.
int64_t PreemptiveLength(std::vector<Job> jobs) {
  std::sort(jobs.begin(), jobs.end(),
            [](const Job& a, const Job& b) { return a.head_ns < b.head_ns; });
  std::priority_queue<std::pair<int64_t, int64_t>> ready;  // tail, remaining duration
  int64_t now_ns = 0;
  int64_t length_ns = 0;
  for (size_t next = 0; next < jobs.size() || !ready.empty();) {
    if (ready.empty()) now_ns = std::max(now_ns, jobs[next].head_ns);
    for (; next < jobs.size() && jobs[next].head_ns <= now_ns; ++next) {
      ready.emplace(jobs[next].tail_ns, jobs[next].duration_ns);
    }
    const auto [tail_ns, left_ns] = ready.top();
    ready.pop();
    const int64_t free_ns = next < jobs.size() ? jobs[next].head_ns - now_ns : left_ns;
    const int64_t run_ns = std::min(left_ns, free_ns);
    now_ns += run_ns;
    if (run_ns < left_ns) {
      ready.emplace(tail_ns, left_ns - run_ns);
    } else {
      length_ns = std::max(length_ns, now_ns + tail_ns);
    }
  }
  return length_ns;
}

class Relaxation {
 public:
  explicit Relaxation(const StepProblem& problem)
      : problem_(problem),
        index_(problem, problem.steps),
        head_(index_.size()),
        tail_(head_.size()) {
    const auto passes = static_cast<int32_t>(problem.stages.size()) * kPasses;
    for (int32_t id = 0; id < passes; ++id) duration_.push_back(problem.duration_ns(id));
    const int32_t places = problem.topology.depth();
    const int64_t microbatches = problem.microbatches * problem.steps;
    const auto set = [&](void (Relaxation::*side)(int32_t, Pass, int64_t), int32_t place, Pass pass,
                         int64_t microbatch) {
      const StageId stage = problem.topology.StageAt(place, microbatch);
      (this->*side)(stage.value, pass, microbatch / problem.topology[stage].turns);
    };
    for (int64_t m = 0; m < microbatches; ++m) {
      for (int32_t p = 0; p < places; ++p) set(&Relaxation::SetHead, p, kPassF, m);
      for (int32_t p = places - 1; p >= 0; --p) set(&Relaxation::SetHead, p, kPassI, m);
      for (int32_t p = 0; p < places; ++p) set(&Relaxation::SetHead, p, kPassW, m);
    }
    for (int64_t m = microbatches - 1; m >= 0; --m) {
      for (int32_t p = 0; p < places; ++p) set(&Relaxation::SetTail, p, kPassW, m);
      for (int32_t p = 0; p < places; ++p) set(&Relaxation::SetTail, p, kPassI, m);
      for (int32_t p = places - 1; p >= 0; --p) set(&Relaxation::SetTail, p, kPassF, m);
    }
  }

  int64_t Bound() const {
    int64_t bound_ns = 0;
    for (const StepProblem::Worker& worker : problem_.workers) {
      std::vector<Job> jobs;
      for (const int32_t stage : worker.stages) {
        for (const Pass pass : {kPassF, kPassI, kPassW}) {
          const int32_t id = PassId(stage, pass);
          for (int64_t m = 0; m < Microbatches(stage); ++m) {
            jobs.push_back({head_[index_(id, m)], duration_[id], tail_[index_(id, m)]});
          }
        }
      }
      bound_ns = std::max(bound_ns, PreemptiveLength(std::move(jobs)));
    }
    return bound_ns;
  }

 private:
  // Of the stage, in all steps.
  int64_t Microbatches(int32_t stage) const {
    return problem_.stages[stage].microbatches * problem_.steps;
  }
  int64_t MemoryOf(int32_t stage) const {
    return problem_.workers[problem_.stages[stage].worker].memory_max;
  }
  int64_t HeadEnd(int32_t id, int64_t m) const { return head_[index_(id, m)] + duration_[id]; }
  int64_t TailStart(int32_t id, int64_t m) const { return tail_[index_(id, m)] + duration_[id]; }

  // The work of the stage itself that comes before, or after, a pass of microbatch m in any order.
  int64_t Work(int32_t stage, int64_t forwards, int64_t inputs, int64_t weights) const {
    return std::max<int64_t>(forwards, 0) * duration_[PassId(stage, kPassF)] +
           std::max<int64_t>(inputs, 0) * duration_[PassId(stage, kPassI)] +
           std::max<int64_t>(weights, 0) * duration_[PassId(stage, kPassW)];
  }

  // `m`: of the microbatches of stage s.
  void SetHead(int32_t s, Pass pass, int64_t m) {
    const int32_t id = PassId(s, pass);
    const int64_t memory = MemoryOf(s);
    int64_t& head = head_[index_(id, m)];
    if (m > 0) head = HeadEnd(id, m - 1);
    const auto raise = [&head](int64_t ns) { head = std::max(head, ns); };
    if (pass == kPassF) {
      if (m >= memory) raise(HeadEnd(PassId(s, kPassW), m - memory));
    } else {
      raise(HeadEnd(id - 1, m));
    }
    const StepProblem::Neighbour source = problem_.Source(id, m);
    if (source.pass_id >= 0) raise(HeadEnd(source.pass_id, source.microbatch) + source.delay_ns);
    const int64_t start_ns = head_[index_(PassId(s, kPassF), 0)];
    const int64_t released = m + 1 - memory;  // W's that made room for F of m
    if (pass == kPassF) raise(start_ns + Work(s, m, released, released));
    if (pass == kPassI) raise(start_ns + Work(s, m + 1, m, released));
    if (pass == kPassW) raise(start_ns + Work(s, m + 1, m + 1, m));
  }

  void SetTail(int32_t s, Pass pass, int64_t m) {
    const int32_t id = PassId(s, pass);
    const int64_t memory = MemoryOf(s);
    const int64_t left = Microbatches(s) - m;
    const int64_t waiting = left - memory;  // F's that need the room of m
    const int64_t end_ns =
        problem_.workers[problem_.stages[s].worker].update_ns + problem_.overhead_ns;
    int64_t& tail = tail_[index_(id, m)];
    if (left > 1) tail = TailStart(id, m + 1);
    const auto raise = [&tail](int64_t ns) { tail = std::max(tail, ns); };
    const StepProblem::Neighbour target = problem_.Target(id, m);
    if (target.pass_id >= 0) raise(target.delay_ns + TailStart(target.pass_id, target.microbatch));
    if (pass == kPassF) {
      raise(TailStart(PassId(s, kPassI), m));
      raise(end_ns + Work(s, left - 1, left, left));
    } else if (pass == kPassI) {
      raise(TailStart(PassId(s, kPassW), m));
      raise(end_ns + Work(s, waiting, left - 1, left));
    } else {
      if (waiting > 0) raise(TailStart(PassId(s, kPassF), m + memory));
      raise(end_ns + Work(s, waiting, waiting, left - 1));
    }
  }

  const StepProblem& problem_;
  const PassIndex index_;
  std::vector<int64_t> duration_;     // by pass id
  std::vector<int64_t> head_, tail_;  // by index_
};

}  // namespace

int64_t StepBound(const StepProblem& problem) { return Relaxation(problem).Bound(); }

}  // namespace penstock
