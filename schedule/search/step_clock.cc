#include "schedule/search/step_clock.h"

#include <algorithm>

namespace penstock {

namespace {

// The channels of a link.
enum Way : int32_t { kActivations, kGradients };
constexpr int32_t kWays = 2;

}  // namespace

StepClock::StepClock(const StepProblem& problem)
    : problem_(problem), workers_(problem.workers.size()) {
  size_t messages = 0;
  for (const StepProblem::Link& link : problem.links) {
    const StepProblem::Stage& before = problem.stages[link.before.stage];
    const StepProblem::Stage& after = problem.stages[link.after.stage];
    for (const Way way : {kActivations, kGradients}) {
      channels_.push_back({.transfer_ns = link.transfer_ns,
                           .latency_ns = link.latency_ns,
                           .first_message = messages,
                           .sender = way == kActivations ? before.worker : after.worker,
                           .receiver = way == kActivations ? after.worker : before.worker});
      messages += before.microbatches / link.before.stride * problem.steps;
    }
  }
  messages_.resize(messages);
  const auto passes = static_cast<int32_t>(problem.stages.size()) * kPasses;
  for (int32_t id = 0; id < passes; ++id) {
    const Way way = KindOfPass(id) == kPassF ? kActivations : kGradients;
    PassFacts facts{.compute_ns = problem.stages[StageOfPass(id)].compute_ns[KindOfPass(id)]};
    if (problem.receives(id)) facts.in = AddTurns(problem.LinksIn(id), way);
    if (problem.sends(id)) facts.out = AddTurns(problem.LinksOut(id), way);
    facts_.push_back(facts);
  }
  done_.resize(passes);
  for (const StepProblem::Worker& worker : problem.workers) {
    int64_t steps = 0;
    for (const int32_t stage : worker.stages) {
      steps += problem.stages[stage].microbatches * kPasses * problem.steps;
    }
    steps_.emplace_back(steps);
  }
  queue_.reserve(workers_.size());
}

StepClock::Turns StepClock::AddTurns(absl::Span<const int32_t> links, int32_t way) {
  const auto count = static_cast<int32_t>(links.size());
  if (count == 1) {
    const int32_t channel = links[0] * kWays + way;
    return {.count = 1, .first = channel, .first_message = channels_[channel].first_message};
  }
  const auto first = static_cast<int32_t>(channels_in_turn_.size());
  for (const int32_t link : links) channels_in_turn_.push_back(link * kWays + way);
  return {.count = count, .first = first};
}

int64_t StepClock::Measure(const StepOrder& order) {
  order_ = &order;
  std::fill(done_.begin(), done_.end(), 0);
  for (Channel& channel : channels_) {
    channel.sent = 0;
    channel.received = 0;
    channel.link_free_ns = 0;
  }
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
      if (!Receive(id, facts_[pass].in, microbatch)) return;
      worker.now_ns += facts_[pass].compute_ns;
      worker.phase = Phase::kSend;
    }
    if (!Send(worker, facts_[pass].out, microbatch)) return;
    ++done_[pass];
    ++worker.done;
    worker.phase = Phase::kCompute;
    if (++worker.position < static_cast<int32_t>(list.size())) continue;
    worker.position = 0;
    worker.now_ns += problem_.workers[id].update_ns;
  }
}

bool StepClock::Receive(int32_t id, const Turns& in, int64_t microbatch) {
  Worker& worker = workers_[id];
  Step& step = steps_[id][worker.done];
  step = {.microbatch = static_cast<int32_t>(microbatch), .waited = false};
  if (in.count == 0) return true;
  const MessageId message_id = MessageOf(in, microbatch);
  Channel& channel = channels_[message_id.channel];
  if (channel.sent <= message_id.number) return false;
  Message& message = messages_[message_id.index];
  if (message.arrival_ns > worker.now_ns) {
    worker.now_ns = message.arrival_ns;
    step.waited = true;
  }
  worker.now_ns += problem_.overhead_ns;
  message.freed_ns = worker.now_ns;
  ++channel.received;
  // The sender may wait for the place.
  if (channel.sent == channel.received - 1 + problem_.channel_capacity) Wake(channel.sender);
  return true;
}

bool StepClock::Send(Worker& worker, const Turns& out, int64_t microbatch) {
  if (out.count == 0) return true;
  const MessageId id = MessageOf(out, microbatch);
  Channel& channel = channels_[id.channel];
  Message* const message = &messages_[id.index];
  const int64_t before = id.number - problem_.channel_capacity;
  if (before >= 0) {
    if (channel.received <= before) return false;
    worker.now_ns = std::max(worker.now_ns, message[-problem_.channel_capacity].freed_ns);
  }
  worker.now_ns += problem_.overhead_ns;
  channel.link_free_ns = std::max(worker.now_ns, channel.link_free_ns) + channel.transfer_ns;
  message->arrival_ns = channel.link_free_ns + channel.latency_ns;
  message->sent_at = worker.done;
  ++channel.sent;
  Wake(channel.receiver);
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
    const MessageId message = MessageOf(facts_[list[position]].in, step.microbatch);
    done = messages_[message.index].sent_at;
    id = channels_[message.channel].sender;
  }
  return path_;
}

}  // namespace penstock
