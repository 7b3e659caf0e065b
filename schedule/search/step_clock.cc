#include "schedule/search/step_clock.h"

#include <algorithm>

namespace penstock {

StepClock::StepClock(const StepProblem& problem)
    : problem_(problem),
      microbatches_(static_cast<size_t>(problem.microbatches)),
      workers_(problem.workers.size()) {
  const auto passes = static_cast<int32_t>(problem.stages.size()) * kPasses;
  for (int32_t id = 0; id < passes; ++id) {
    const int32_t stage = StageOfPass(id);
    const Pass pass = KindOfPass(id);
    const int32_t onward = pass == kPassF ? kPasses : -kPasses;
    PassFacts facts{.compute_ns = problem.stages[stage].compute_ns[pass],
                    .transfer_ns = 0,
                    .latency_ns = 0,
                    .source = problem.receives(id) ? id - onward : -1,
                    .target = problem.sends(id) ? id + onward : -1,
                    .worker = problem.stages[stage].worker};
    if (facts.target >= 0) {
      const StepProblem::Link& link = problem.links[pass == kPassF ? stage : stage - 1];
      facts.transfer_ns = link.transfer_ns;
      facts.latency_ns = link.latency_ns;
    }
    facts_.push_back(facts);
  }
  done_.resize(passes);
  channels_.resize(passes);
  arrival_ns_.resize(passes * microbatches_);
  freed_ns_.resize(passes * microbatches_);
  sent_at_.resize(passes * microbatches_);
  for (const StepProblem::Worker& worker : problem.workers) {
    waited_.emplace_back(worker.stages.size() * kPasses * microbatches_);
    microbatch_.emplace_back(worker.stages.size() * kPasses * microbatches_);
  }
  queue_.reserve(workers_.size());
}

int64_t StepClock::Measure(const StepOrder& order) {
  order_ = &order;
  std::fill(done_.begin(), done_.end(), 0);
  std::fill(channels_.begin(), channels_.end(), Channel());
  std::fill(workers_.begin(), workers_.end(), Worker());
  // Served from the back: the first worker runs first.
  for (auto id = static_cast<int32_t>(workers_.size()) - 1; id >= 0; --id) Wake(id);
  while (!queue_.empty()) {
    const int32_t id = queue_.back();
    queue_.pop_back();
    workers_[id].queued = false;
    Advance(id, order.lists[id]);
  }
  int64_t makespan_ns = 0;
  for (size_t id = 0; id < workers_.size(); ++id) {
    if (workers_[id].position < static_cast<int32_t>(order.lists[id].size())) return kNever;
    workers_[id].now_ns += problem_.workers[id].end_ns;
    makespan_ns = std::max(makespan_ns, workers_[id].now_ns);
  }
  return makespan_ns;
}

void StepClock::Wake(int32_t worker) {
  if (workers_[worker].queued) return;
  workers_[worker].queued = true;
  queue_.push_back(worker);
}

void StepClock::Advance(int32_t id, const PassList& list) {
  Worker& worker = workers_[id];
  const auto size = static_cast<int32_t>(list.size());
  while (worker.position < size) {
    const int32_t pass = list[worker.position];
    const PassFacts& facts = facts_[pass];
    const int64_t microbatch = done_[pass];
    if (worker.phase == Phase::kReceive) {
      microbatch_[id][worker.position] = static_cast<int32_t>(microbatch);
      waited_[id][worker.position] = 0;
      if (facts.source >= 0) {
        Channel& channel = channels_[facts.source];
        if (channel.sent <= microbatch) return;
        const size_t message = MessageIndex(facts.source, microbatch);
        if (arrival_ns_[message] > worker.now_ns) {
          worker.now_ns = arrival_ns_[message];
          waited_[id][worker.position] = 1;
        }
        worker.now_ns += problem_.overhead_ns;
        freed_ns_[message] = worker.now_ns;
        ++channel.received;
        if (channel.received == channel.sent - problem_.channel_capacity + 1) {
          Wake(facts_[facts.source].worker);
        }
      }
      worker.phase = Phase::kCompute;
    }
    if (worker.phase == Phase::kCompute) {
      worker.now_ns += facts.compute_ns;
      worker.phase = Phase::kSend;
    }
    if (facts.target >= 0) {
      Channel& channel = channels_[pass];
      const int64_t before = microbatch - problem_.channel_capacity;
      if (before >= 0) {
        if (channel.received <= before) return;
        worker.now_ns = std::max(worker.now_ns, freed_ns_[MessageIndex(pass, before)]);
      }
      worker.now_ns += problem_.overhead_ns;
      channel.link_free_ns = std::max(worker.now_ns, channel.link_free_ns) + facts.transfer_ns;
      const size_t message = MessageIndex(pass, microbatch);
      arrival_ns_[message] = channel.link_free_ns + facts.latency_ns;
      sent_at_[message] = worker.position;
      ++channel.sent;
      Wake(facts_[facts.target].worker);
    }
    ++done_[pass];
    ++worker.position;
    worker.phase = Phase::kReceive;
  }
}

const std::vector<StepClock::Place>& StepClock::CriticalPath() {
  path_.clear();
  int32_t id = 0;
  for (size_t other = 1; other < workers_.size(); ++other) {
    if (workers_[other].now_ns > workers_[id].now_ns) id = static_cast<int32_t>(other);
  }
  int32_t position = workers_[id].position - 1;
  while (position >= 0) {
    path_.push_back({id, position});
    if (!waited_[id][position]) {
      --position;
      continue;
    }
    const int32_t source = facts_[order_->lists[id][position]].source;
    position = sent_at_[MessageIndex(source, microbatch_[id][position])];
    id = facts_[source].worker;
  }
  return path_;
}

}  // namespace penstock
