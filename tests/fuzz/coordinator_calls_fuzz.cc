// The coordinator among clients and workers that call what they like in any order, answer when they like and what they
// like, while time passes: its invariants hold after every call, and what it keeps of a job can be read back.
//
// An input is steps: a byte that says what is done, and its numbers.
#include <array>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/coordinator.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/job/jobs.h"

namespace penstock {
namespace {

class FuzzedCoordinator {
 public:
  explicit FuzzedCoordinator(FuzzBytes input) : input_(input) {}

  void Run() {
    while (!input_.empty()) {
      Step();
      TakeEffects();
      PENSTOCK_CHECK(coordinator_.CheckInvariants().ok());
    }
  }

 private:
  uint64_t Choice(uint64_t count) { return input_.Take<uint8_t>() % count; }
  std::string WorkerName() { return absl::StrCat("w", Choice(3)); }
  uint64_t Incarnation() { return 1 + Choice(2); }
  // Of those that were submitted, or another one.
  std::string JobId() {
    const uint64_t job = Choice(jobs_.size() + 1);
    return job < jobs_.size() ? jobs_[job] : "other-1";
  }

  void Step() {
    switch (Choice(10)) {
      case 0:
        return Register();
      case 1:
        return Heartbeat();
      case 2:
        return Submit();
      case 3:
        (void)coordinator_.CancelJob(JobId(), now_).ok();
        return;
      case 4:
        now_.monotonic_ns += input_.Take<uint16_t>() * kNsPerMs;
        now_.unix_ms += input_.Take<int8_t>();  // people may set it
        return coordinator_.Tick(now_);
      case 5:
      case 6:
        return AnswerCall();
      case 7:
        return AnswerDisk();
      case 8:
        return Report();
      default: {
        (void)coordinator_.ListJobs();
        (void)coordinator_.ListWorkers(now_);
        const uint64_t more = Choice(64);
        if (more == 63) coordinator_.Drain(now_);
        if (more >= 32 && more < 63) Stream();
      }
    }
  }

  void Register() {
    v1::RegisterWorkerRequest request;
    request.set_name(WorkerName());
    request.set_address(absl::StrCat("10.0.0.", Choice(4), ":7000"));
    request.set_incarnation(Incarnation());
    request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
    request.set_memory_bytes(int64_t{1} << 30);
    (void)coordinator_.RegisterWorker(request, now_).ok();
  }

  void Heartbeat() {
    v1::HeartbeatRequest request;
    request.set_name(WorkerName());
    request.set_incarnation(Incarnation());
    if (Choice(2) == 0) {
      request.set_job_id(JobId());
      request.set_epoch(static_cast<int64_t>(Choice(4)));
      request.set_actions_done(input_.Take<int64_t>());
    }
    request.set_leaving(Choice(8) == 7);
    (void)coordinator_.Heartbeat(request, now_).ok();
  }

  // A worker attaches, its stream ends, or somebody has tried to reach it.
  void Stream() {
    const auto stream = static_cast<int64_t>(Choice(8));
    switch (Choice(3)) {
      case 0: {
        v1::AttachRequest request;
        request.set_name(WorkerName());
        request.set_incarnation(Incarnation());
        (void)coordinator_.Attach(request, now_).ok();
        return;
      }
      case 1:
        return coordinator_.Detach(WorkerName(), stream, now_);
      default:
        coordinator_.OnProbed({.worker = WorkerName(), .address = "", .stream = stream},
                              absl::Status(static_cast<absl::StatusCode>(Choice(17)), "probed"),
                              now_);
    }
  }

  void Submit() {
    // More of them would show nothing else, and take long.
    constexpr size_t kJobsMax = 4;
    static const auto* const jobs =
        new std::array<v1::JobSpec, 3>{SmallJob(8, 1), SmallJob(8, 2), SmallJob(8, 3)};
    if (jobs_.size() == kJobsMax) return;
    v1::SubmitJobRequest request;
    *request.mutable_spec() = (*jobs)[Choice(jobs->size())];
    if (const uint64_t directory = Choice(3); directory > 0) {
      request.mutable_spec()->mutable_checkpoint()->set_directory(absl::StrCat("/c", directory));
      request.mutable_spec()->mutable_checkpoint()->set_every_steps(2);
    }
    if (const uint64_t key = Choice(4); key > 0) request.set_idempotency_key(absl::StrCat(key));
    const absl::StatusOr<Submission> submission = coordinator_.CheckSubmission(request, now_);
    if (!submission.ok() || !submission->record.has_value()) return;
    FuzzAccepted();
    coordinator_.AddJob(*submission->record, now_);
    jobs_.push_back(submission->job_id);
  }

  // A worker's answer: what a good one says, an error, or a number that it should not have.
  void AnswerCall() {
    if (calls_.empty()) return;
    const CallWorker call = calls_.front();
    calls_.pop_front();
    CallAnswer answer = {.epoch = call.epoch, .worker_index = call.worker_index};
    const bool fails = Choice(8) == 7;
    const absl::Status error(static_cast<absl::StatusCode>(1 + Choice(16)), "as the input says");
    if (const auto* prepare = std::get_if<v1::PrepareRunRequest>(&call.request)) {
      v1::PrepareRunResponse response;
      response.set_schedule_digest(prepare->plan().schedule_digest());
      answer.response = OrError(response, fails, error);
    } else if (std::holds_alternative<v1::PrepareProfileRequest>(call.request)) {
      answer.response = OrError(v1::PrepareProfileResponse(), fails, error);
    } else if (std::holds_alternative<v1::StartRunRequest>(call.request)) {
      answer.response = OrError(v1::StartRunResponse(), fails, error);
    } else if (std::holds_alternative<v1::HoldRunRequest>(call.request)) {
      v1::HoldRunResponse response;
      response.set_step(Choice(2) == 0 ? static_cast<int64_t>(Choice(10)) : input_.Take<int64_t>());
      answer.response = OrError(response, fails, error);
    } else if (std::holds_alternative<v1::CutRunRequest>(call.request)) {
      answer.response = OrError(v1::CutRunResponse(), fails, error);
    } else {
      answer.response = OrError(v1::StopRunResponse(), fails, error);
    }
    coordinator_.OnAnswer(call.job_id, std::move(answer), now_);
  }

  template <typename Response>
  static WorkerResponse OrError(const Response& response, bool fails, const absl::Status& error) {
    return fails ? absl::StatusOr<Response>(error) : absl::StatusOr<Response>(response);
  }

  void AnswerDisk() {
    const bool fails = Choice(4) == 3;
    if (!finds_.empty()) {
      const std::string job_id = finds_.front().job_id;
      finds_.pop_front();
      absl::StatusOr<FoundStart> start = FoundStart();
      if (fails) start = absl::DataLossError("damaged");
      coordinator_.OnAnswer(job_id, StartFound{.start = std::move(start), .lease = nullptr}, now_);
    } else if (!commits_.empty()) {
      const CommitStaged commit = commits_.front();
      commits_.pop_front();
      absl::StatusOr<CommittedCheckpoint> checkpoint =
          CommittedCheckpoint{.directory = absl::StrCat("/c/step-", commit.manifest.step)};
      if (fails) checkpoint = absl::ResourceExhaustedError("disk full");
      coordinator_.OnAnswer(commit.job_id,
                            CheckpointCommitted{commit.manifest.step, std::move(checkpoint)}, now_);
    }
  }

  void Report() {
    v1::ReportRunRequest report;
    report.set_worker(WorkerName());
    report.set_incarnation(Incarnation());
    report.set_job_id(JobId());
    const JobRun* const run = coordinator_.FindRun(report.job_id());
    report.set_epoch(run == nullptr ? 1 : run->epoch());
    const std::optional<int32_t> index =
        run == nullptr ? std::nullopt
                       : run->IndexOf(report.worker(), report.incarnation(), report.epoch());
    report.set_first_sequence(index.has_value() ? run->NextSequence(*index) : 0);
    const absl::string_view event = input_.TakeText(Choice(128));
    if (!report.add_events()->ParseFromArray(event.data(), static_cast<int>(event.size()))) return;
    (void)coordinator_.ReportRun(report, now_).ok();
  }

  void TakeEffects() {
    for (CoordinatorEffect& effect : coordinator_.TakeEffects()) {
      if (auto* call = std::get_if<CallWorker>(&effect)) {
        calls_.push_back(std::move(*call));
      } else if (auto* find = std::get_if<FindCheckpoint>(&effect)) {
        finds_.push_back(std::move(*find));
      } else if (auto* commit = std::get_if<CommitStaged>(&effect)) {
        commits_.push_back(std::move(*commit));
      } else if (const auto* save = std::get_if<SaveJob>(&effect)) {
        v1::GetJobResponse read;
        PENSTOCK_CHECK(read.ParseFromString(save->record.SerializeAsString()));
      }
    }
  }

  FuzzBytes input_;
  Coordinator coordinator_{{}};
  Now now_ = {.monotonic_ns = kNsPerMs, .unix_ms = 1'700'000'000'000};
  std::vector<std::string> jobs_;
  // To be answered, in order.
  std::deque<CallWorker> calls_;
  std::deque<FindCheckpoint> finds_;
  std::deque<CommitStaged> commits_;
};

}  // namespace
}  // namespace penstock

PENSTOCK_FUZZ_TARGET(coordinator_calls) {
  penstock::FuzzedCoordinator(penstock::FuzzBytes(data, size)).Run();
  return 0;
}
