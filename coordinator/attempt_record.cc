#include "coordinator/attempt_record.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace penstock {
namespace {

constexpr size_t kMessageBytesMax = 300;

}  // namespace

v1::Attempt* OpenAttempt(v1::JobResult& result) {
  const int count = result.attempts_size();
  if (count == 0) return nullptr;
  v1::Attempt* const last = result.mutable_attempts(count - 1);
  return last->cause() == v1::ATTEMPT_CAUSE_UNSPECIFIED ? last : nullptr;
}

void BeginAttemptRecord(int64_t epoch, int64_t first_step, v1::JobResult& result) {
  auto& attempts = *result.mutable_attempts();
  if (!attempts.empty()) {
    v1::Attempt& before = *attempts.rbegin();
    before.set_steps_redone(std::max<int64_t>(0, before.last_step() - first_step));
    result.set_steps_redone(result.steps_redone() + before.steps_redone());
  }
  if (attempts.size() == kAttemptsKept) attempts.erase(attempts.begin());
  v1::Attempt& attempt = *attempts.Add();
  attempt.set_epoch(epoch);
  attempt.set_first_step(first_step);
  attempt.set_last_step(first_step);
}

void NoteDetected(int64_t unix_ms, v1::JobResult& result) {
  if (v1::Attempt* const attempt = OpenAttempt(result)) attempt->set_detected_ms(unix_ms);
}

void EndAttemptRecord(v1::AttemptCause cause, const std::string& worker, const std::string& message,
                      int64_t unix_ms, v1::JobResult& result) {
  v1::Attempt* const attempt = OpenAttempt(result);
  if (attempt == nullptr) return;
  attempt->set_cause(cause);
  attempt->set_worker(worker);
  attempt->set_message(CleanUtf8(message, kMessageBytesMax));
  if (attempt->detected_ms() == 0) attempt->set_detected_ms(unix_ms);
}

void ResumeAttemptRecords(int64_t unix_ms, v1::JobResult& result) {
  for (v1::Attempt& attempt : *result.mutable_attempts()) {
    const bool over = attempt.cause() != v1::ATTEMPT_CAUSE_UNSPECIFIED;
    if (over && attempt.resumed_ms() == 0) attempt.set_resumed_ms(unix_ms);
  }
}

std::string WhatIsLostOf(const v1::JobResult& result) {
  if (result.checkpoint().empty()) return "nothing of it is saved";
  return absl::StrCat("its steps after ", result.checkpoint(), " are lost");
}

bool HasOwnCheckpoint(const v1::JobResult& result, const v1::CheckpointSpec& checkpoint) {
  // An attempt notes what it begins with, which is that of the job's spec until the job has saved one itself.
  return !checkpoint.directory().empty() && !result.checkpoint().empty() &&
         result.checkpoint() != checkpoint.resume();
}

void ResumeOwn(const v1::JobResult& result, v1::CheckpointSpec& checkpoint) {
  if (checkpoint.directory().empty()) return;
  if (checkpoint.resume().empty() || HasOwnCheckpoint(result, checkpoint)) {
    checkpoint.set_resume("latest");
  }
}

}  // namespace penstock
