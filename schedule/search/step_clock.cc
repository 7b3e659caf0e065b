#include "schedule/search/step_clock.h"

#include <algorithm>

namespace penstock {

StepClock::StepClock(const StepProblem& problem)
    : problem_(problem),
      microbatches_(static_cast<size_t>(problem.microbatches * problem.steps)),
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
  messages_.resize(passes * microbatches_);
  for (const StepProblem::Worker& worker : problem.workers) {
    steps_.emplace_back(worker.stages.size() * kPasses * microbatches_);
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
    if (workers_[id].done < static_cast<int32_t>(steps_[id].size())) return kNever;
    workers_[id].now_ns += problem_.overhead_ns;
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
  const auto all = static_cast<int32_t>(steps_[id].size());
  while (worker.done < all) {
    const int32_t pass = list[worker.position];
    const int64_t microbatch = done_[pass];
    if (worker.phase == Phase::kCompute) {
      if (!Receive(id, pass, microbatch)) return;
      worker.now_ns += facts_[pass].compute_ns;
      worker.phase = Phase::kSend;
    }
    if (!Send(worker, pass, microbatch)) return;
    ++done_[pass];
    ++worker.done;
    worker.phase = Phase::kCompute;
    if (++worker.position < static_cast<int32_t>(list.size())) continue;
    worker.position = 0;
    worker.now_ns += problem_.workers[id].update_ns;
  }
}

bool StepClock::Receive(int32_t id, int32_t pass, int64_t microbatch) {
  Worker& worker = workers_[id];
  Step& step = steps_[id][worker.done];
  step = {.microbatch = static_cast<int32_t>(microbatch), .waited = false};
  const int32_t source = facts_[pass].source;
  if (source < 0) return true;
  Channel& channel = channels_[source];
  if (channel.sent <= microbatch) return false;
  Message& message = messages_[MessageIndex(source, microbatch)];
  if (message.arrival_ns > worker.now_ns) {
    worker.now_ns = message.arrival_ns;
    step.waited = true;
  }
  worker.now_ns += problem_.overhead_ns;
  message.freed_ns = worker.now_ns;
  ++channel.received;
  // The sender may wait for the place.
  if (channel.sent == channel.received - 1 + problem_.channel_capacity) {
    Wake(facts_[source].worker);
  }
  return true;
}

bool StepClock::Send(Worker& worker, int32_t pass, int64_t microbatch) {
  const PassFacts& facts = facts_[pass];
  if (facts.target < 0) return true;
  Channel& channel = channels_[pass];
  const int64_t before = microbatch - problem_.channel_capacity;
  if (before >= 0) {
    if (channel.received <= before) return false;
    worker.now_ns = std::max(worker.now_ns, messages_[MessageIndex(pass, before)].freed_ns);
  }
  worker.now_ns += problem_.overhead_ns;
  channel.link_free_ns = std::max(worker.now_ns, channel.link_free_ns) + facts.transfer_ns;
  Message& message = messages_[MessageIndex(pass, microbatch)];
  message.arrival_ns = channel.link_free_ns + facts.latency_ns;
  message.sent_at = worker.done;
  ++channel.sent;
  Wake(facts_[facts.target].worker);
  return true;
}

const std::vector<StepClock::Place>& StepClock::CriticalPath() {
  path_.clear();
  int32_t id = 0;
  for (size_t other = 1; other < workers_.size(); ++other) {
    if (workers_[other].now_ns > workers_[id].now_ns) id = static_cast<int32_t>(other);
  }
  int32_t done = workers_[id].done - 1;
  while (done >= 0) {
    const PassList& list = order_->lists[id];
    const auto position = static_cast<int32_t>(done % list.size());
    path_.push_back({id, position});
    const Step& step = steps_[id][done];
    if (!step.waited) {
      --done;
      continue;
    }
    const int32_t source = facts_[list[position]].source;
    done = messages_[MessageIndex(source, step.microbatch)].sent_at;
    id = facts_[source].worker;
  }
  return path_;
}

}  // namespace penstock
