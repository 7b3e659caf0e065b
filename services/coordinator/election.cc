#include "services/coordinator/election.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "services/coordinator/etcd_store.h"
#include "services/rpc/completion_poller.h"

namespace penstock {
namespace {

LeaderEntry EntryOf(const mvccpb::KeyValue& pair, int64_t revision) {
  return {.address = pair.value(),
          .term = pair.create_revision(),
          .lease = pair.lease(),
          .revision = revision};
}

}  // namespace

class Election::TermMandate final : public Mandate {
 public:
  TermMandate(Election& election, int64_t term) : election_(election), term_(term) {}
  bool Holds() override { return election_.Leads(term_); }
  void Lose(const std::string& why) override { election_.Retire(term_, why); }

 private:
  Election& election_;
  const int64_t term_;
};

Election::Election(ElectionParts parts)
    : parts_(std::move(parts)), key_(LeaderKey(parts_.prefix)), leadership_(parts_.limits) {
  thread_ = std::thread([this] { Run(); });
}

Election::~Election() { Stop(); }

void Election::Log(const std::string& line) const {
  if (parts_.log != nullptr) parts_.log(line);
}

Election::View Election::ViewLocked() {
  View view{.trouble = leadership_.trouble()};
  if (leadership_.Leads(parts_.clock.MonotonicNs())) view.term = leadership_.term();
  if (leadership_.leader().has_value()) view.leader = leadership_.leader()->address;
  return view;
}

Election::View Election::Look() {
  MutexLock lock(mutex_);
  return ViewLocked();
}

Election::View Election::AwaitChange(const std::optional<int64_t>& term, absl::Duration timeout) {
  const auto deadline = CondVar::Clock::now() + absl::ToChronoNanoseconds(timeout);
  MutexLock lock(mutex_);
  for (;;) {
    View view = ViewLocked();
    if (view.term != term || stopping_ || !changed_.WaitUntil(mutex_, deadline)) return view;
  }
}

bool Election::Leads(int64_t term) {
  MutexLock lock(mutex_);
  return leadership_.Leads(parts_.clock.MonotonicNs()) && leadership_.term() == term;
}

std::unique_ptr<Mandate> Election::MandateOf(int64_t term) {
  return std::make_unique<TermMandate>(*this, term);
}

void Election::Retire(int64_t term, const std::string& why) {
  MutexLock lock(mutex_);
  leadership_.Retire(term, why, parts_.clock.MonotonicNs());
  changed_.NotifyAll();
}

void Election::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  canceller_.Cancel();
  if (thread_.joinable()) thread_.join();
}

void Election::Run() {
  NameThread("election");
  while (const std::optional<Leadership::Step> step = AwaitStep()) Perform(*step);
  int64_t lease = 0;
  {
    MutexLock lock(mutex_);
    leadership_.Retire(leadership_.term(), "it was stopped", parts_.clock.MonotonicNs());
    lease = leadership_.lease();
  }
  // If that fails, others wait until the lease has ended.
  if (lease != 0) parts_.etcd.RevokeLease(lease, kCallTimeout).IgnoreError();
}

std::optional<Leadership::Step> Election::AwaitStep() {
  MutexLock lock(mutex_);
  for (;;) {
    if (stopping_) return std::nullopt;
    const int64_t now_ns = parts_.clock.MonotonicNs();
    leadership_.Leads(now_ns);  // a term that is over has another step to do
    const Leadership::Todo todo = leadership_.Next();
    if (todo.at_ns <= now_ns) return todo.step;
    changed_.WaitUntil(mutex_,
                       CondVar::Clock::now() + std::chrono::nanoseconds(todo.at_ns - now_ns));
  }
}

void Election::Perform(Leadership::Step step) {
  const int64_t asked_ns = parts_.clock.MonotonicNs();
  int64_t lease = 0, from_revision = 0;
  bool had_trouble = false;
  {
    MutexLock lock(mutex_);
    lease = leadership_.lease();
    if (leadership_.leader().has_value()) from_revision = leadership_.leader()->revision + 1;
    had_trouble = !leadership_.trouble().ok();
  }
  // The answer is handed on with the lock held; it is asked for without.
  std::function<void(Leadership&, int64_t)> hand_on;
  switch (step) {
    case Leadership::Step::kLook: {
      hand_on = [found = ReadLeader()](Leadership& leadership, int64_t now_ns) {
        leadership.OnLooked(found, now_ns);
      };
      break;
    }
    case Leadership::Step::kAwaitRemoval: {
      const auto removed = parts_.etcd.AwaitRemoval(key_, from_revision, kAwaitTimeout, canceller_);
      hand_on = [removed](Leadership& leadership, int64_t now_ns) {
        leadership.OnAwaited(removed, now_ns);
      };
      break;
    }
    case Leadership::Step::kGrant: {
      const auto granted = parts_.etcd.GrantLease(parts_.limits.ttl_ms, kCallTimeout);
      hand_on = [granted, asked_ns](Leadership& leadership, int64_t now_ns) {
        leadership.OnGranted(granted, asked_ns, now_ns);
      };
      break;
    }
    case Leadership::Step::kCampaign: {
      hand_on = [campaign = MakeKey(lease)](Leadership& leadership, int64_t now_ns) {
        leadership.OnCampaigned(campaign, now_ns);
      };
      break;
    }
    case Leadership::Step::kRenew: {
      const auto ttl_ms = parts_.etcd.KeepAlive(lease, kRenewTimeout);
      hand_on = [ttl_ms, asked_ns](Leadership& leadership, int64_t now_ns) {
        leadership.OnRenewed(ttl_ms, asked_ns, now_ns);
      };
      break;
    }
    case Leadership::Step::kRevoke: {
      parts_.etcd.RevokeLease(lease, kCallTimeout).IgnoreError();
      hand_on = [](Leadership& leadership, int64_t now_ns) { leadership.OnRevoked(now_ns); };
      break;
    }
  }
  std::string line;
  {
    MutexLock lock(mutex_);
    const int64_t now_ns = parts_.clock.MonotonicNs();
    hand_on(leadership_, now_ns);
    const bool leads = leadership_.Leads(now_ns);
    const bool led = std::exchange(told_leading_, leads);
    if (leads && !led) {
      line = absl::StrCat("leads the cluster now, term ", leadership_.term());
    } else if (led && !leads) {
      line = absl::StrCat("leads the cluster no longer: ", leadership_.why_over());
    } else if (!had_trouble && !leadership_.trouble().ok()) {
      line = absl::StrCat("cannot ask etcd, tried again: ", leadership_.trouble().message());
    } else if (had_trouble && leadership_.trouble().ok()) {
      line = "etcd answers again";
    }
    changed_.NotifyAll();
  }
  if (!line.empty()) Log(line);
}

absl::StatusOr<std::optional<LeaderEntry>> Election::ReadLeader() {
  etcdserverpb::RangeRequest request;
  request.set_key(key_);
  PENSTOCK_ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse response,
                            parts_.etcd.Range(request, kCallTimeout));
  if (response.kvs_size() == 0) return std::nullopt;
  return EntryOf(response.kvs(0), response.header().revision());
}

absl::StatusOr<Leadership::Campaign> Election::MakeKey(int64_t lease) {
  etcdserverpb::TxnRequest request;
  etcdserverpb::Compare& absent = *request.add_compare();
  absent.set_key(key_);
  absent.set_target(etcdserverpb::Compare::CREATE);
  absent.set_result(etcdserverpb::Compare::EQUAL);
  absent.set_create_revision(0);
  etcdserverpb::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(key_);
  put.set_value(parts_.address);
  put.set_lease(lease);
  request.add_failure()->mutable_request_range()->set_key(key_);
  PENSTOCK_ASSIGN_OR_RETURN(const etcdserverpb::TxnResponse response,
                            parts_.etcd.Txn(request, kCallTimeout));
  const int64_t revision = response.header().revision();
  if (response.succeeded()) {
    return Leadership::Campaign{
        .won = true,
        .leader = {
            .address = parts_.address, .term = revision, .lease = lease, .revision = revision}};
  }
  if (response.responses_size() == 0 || response.responses(0).response_range().kvs_size() == 0) {
    return absl::InternalError(
        absl::StrCat("etcd refused to make the key ", key_, " and says nothing of who has it"));
  }
  return Leadership::Campaign{
      .won = false, .leader = EntryOf(response.responses(0).response_range().kvs(0), revision)};
}

}  // namespace penstock
