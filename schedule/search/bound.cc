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
        stages_(static_cast<int32_t>(problem.stages.size())),
        microbatches_(problem.microbatches * problem.steps),
        head_(problem.stages.size() * kPasses * microbatches_),
        tail_(head_.size()) {
    for (int32_t id = 0; id < stages_ * kPasses; ++id) {
      duration_.push_back(problem.duration_ns(id));
    }
    for (int64_t m = 0; m < microbatches_; ++m) {
      for (int32_t s = 0; s < stages_; ++s) SetHead(s, kPassF, m);
      for (int32_t s = stages_ - 1; s >= 0; --s) SetHead(s, kPassI, m);
      for (int32_t s = 0; s < stages_; ++s) SetHead(s, kPassW, m);
    }
    for (int64_t m = microbatches_ - 1; m >= 0; --m) {
      for (int32_t s = 0; s < stages_; ++s) SetTail(s, kPassW, m);
      for (int32_t s = 0; s < stages_; ++s) SetTail(s, kPassI, m);
      for (int32_t s = stages_ - 1; s >= 0; --s) SetTail(s, kPassF, m);
    }
  }

  int64_t Bound() const {
    int64_t bound_ns = 0;
    for (const StepProblem::Worker& worker : problem_.workers) {
      std::vector<Job> jobs;
      for (const int32_t stage : worker.stages) {
        for (const Pass pass : {kPassF, kPassI, kPassW}) {
          const int32_t id = PassId(stage, pass);
          for (int64_t m = 0; m < microbatches_; ++m) {
            jobs.push_back({head_[Index(id, m)], duration_[id], tail_[Index(id, m)]});
          }
        }
      }
      bound_ns = std::max(bound_ns, PreemptiveLength(std::move(jobs)));
    }
    return bound_ns;
  }

 private:
  size_t Index(int32_t id, int64_t m) const { return static_cast<size_t>(id * microbatches_ + m); }
  int64_t MemoryOf(int32_t stage) const {
    return problem_.workers[problem_.stages[stage].worker].memory_max;
  }
  int64_t HeadEnd(int32_t id, int64_t m) const { return head_[Index(id, m)] + duration_[id]; }
  int64_t TailStart(int32_t id, int64_t m) const { return tail_[Index(id, m)] + duration_[id]; }

  // The work of the stage itself that comes before, or after, a pass of microbatch m in any order.
  int64_t Work(int32_t stage, int64_t forwards, int64_t inputs, int64_t weights) const {
    return std::max<int64_t>(forwards, 0) * duration_[PassId(stage, kPassF)] +
           std::max<int64_t>(inputs, 0) * duration_[PassId(stage, kPassI)] +
           std::max<int64_t>(weights, 0) * duration_[PassId(stage, kPassW)];
  }

  void SetHead(int32_t s, Pass pass, int64_t m) {
    const int32_t id = PassId(s, pass);
    const int64_t memory = MemoryOf(s);
    int64_t& head = head_[Index(id, m)];
    if (m > 0) head = HeadEnd(id, m - 1);
    const auto raise = [&head](int64_t ns) { head = std::max(head, ns); };
    if (pass == kPassF) {
      if (s > 0) raise(HeadEnd(id - kPasses, m) + problem_.delay_ns(id - kPasses));
      if (m >= memory) raise(HeadEnd(PassId(s, kPassW), m - memory));
    } else {
      raise(HeadEnd(id - 1, m));
    }
    if (pass == kPassI && s + 1 < stages_) {
      raise(HeadEnd(id + kPasses, m) + problem_.delay_ns(id + kPasses));
    }
    const int64_t start_ns = head_[Index(PassId(s, kPassF), 0)];
    const int64_t released = m + 1 - memory;  // W's that made room for F of m
    if (pass == kPassF) raise(start_ns + Work(s, m, released, released));
    if (pass == kPassI) raise(start_ns + Work(s, m + 1, m, released));
    if (pass == kPassW) raise(start_ns + Work(s, m + 1, m + 1, m));
  }

  void SetTail(int32_t s, Pass pass, int64_t m) {
    const int32_t id = PassId(s, pass);
    const int64_t memory = MemoryOf(s);
    const int64_t left = microbatches_ - m;
    const int64_t waiting = left - memory;  // F's that need the room of m
    const int64_t end_ns =
        problem_.workers[problem_.stages[s].worker].update_ns + problem_.overhead_ns;
    int64_t& tail = tail_[Index(id, m)];
    if (left > 1) tail = TailStart(id, m + 1);
    const auto raise = [&tail](int64_t ns) { tail = std::max(tail, ns); };
    if (pass == kPassF) {
      if (s + 1 < stages_) raise(problem_.delay_ns(id) + TailStart(id + kPasses, m));
      raise(TailStart(PassId(s, kPassI), m));
      raise(end_ns + Work(s, left - 1, left, left));
    } else if (pass == kPassI) {
      if (s > 0) raise(problem_.delay_ns(id) + TailStart(id - kPasses, m));
      raise(TailStart(PassId(s, kPassW), m));
      raise(end_ns + Work(s, waiting, left - 1, left));
    } else {
      if (waiting > 0) raise(TailStart(PassId(s, kPassF), m + memory));
      raise(end_ns + Work(s, waiting, waiting, left - 1));
    }
  }

  const StepProblem& problem_;
  const int32_t stages_;
  const int64_t microbatches_;
  std::vector<int64_t> duration_;     // by pass id
  std::vector<int64_t> head_, tail_;  // by Index
};

}  // namespace

int64_t StepBound(const StepProblem& problem) { return Relaxation(problem).Bound(); }

}  // namespace penstock
