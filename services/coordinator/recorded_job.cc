#include "services/coordinator/recorded_job.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "services/documents/step_record_text.h"

namespace penstock {
namespace {

std::vector<std::string> FormatsOf(const v1::StepRecordsSpec& spec) {
  if (spec.formats().empty()) return {"jsonl"};
  return {spec.formats().begin(), spec.formats().end()};
}

}  // namespace

std::string RecordDirectoryOf(const v1::JobSpec& spec) {
  const std::string& own = spec.step_records().directory();
  return own.empty() ? spec.checkpoint().directory() : own;
}

RecordedJob::RecordedJob(const v1::GetJobResponse& record, Files& files, LockFileOpener open)
    : directory_(RecordDirectoryOf(record.spec())),
      formats_(FormatsOf(record.spec().step_records())),
      event_file_(absl::StrCat("events.out.tfevents.", record.summary().submitted_unix_ms() / 1000,
                               ".", record.summary().job_id())),
      submitted_s_(1e-3 * static_cast<double>(record.summary().submitted_unix_ms())),
      files_(files),
      open_(std::move(open)),
      events_(record.spec()) {}

void RecordedJob::Take(std::vector<StepRecord> records) {
  for (StepRecord& record : records) unwritten_.push_back(std::move(record));
}

void RecordedJob::SetBusy() {
  MutexLock lock(mutex_);
  state_.busy = true;
}

void RecordedJob::Write() {
  absl::Status status = WriteAll();
  // What is there of these records is cut off when the files are opened again.
  if (!status.ok()) outputs_.clear();
  if (status.ok()) unwritten_.clear();
  SetIdle(std::move(status));
}

void RecordedJob::SetIdle(absl::Status last) {
  MutexLock lock(mutex_);
  state_ = {.busy = false, .last = std::move(last)};
  changed_.NotifyAll();
}

absl::Status RecordedJob::OpenAll() {
  PENSTOCK_RETURN_IF_ERROR(files_.CreateDirectories(directory_));
  const auto add = [this](const std::string& name, RecordLayout layout, const std::string& header,
                          std::string (*encode)(const StepRecord&)) -> absl::Status {
    PENSTOCK_ASSIGN_OR_RETURN(RecordFile file, RecordFile::Open(JoinPath(directory_, name), layout,
                                                                unwritten_.front().step, open_));
    if (file.size_bytes() == 0) PENSTOCK_RETURN_IF_ERROR(file.Append(header));
    outputs_.push_back({.file = std::move(file), .encode = encode});
    return absl::OkStatus();
  };
  for (const std::string& format : formats_) {
    if (format == "csv") {
      PENSTOCK_RETURN_IF_ERROR(
          add("metrics.csv", RecordLayout::kCsv, StepRecordCsvHeader(), StepRecordCsvLine));
    } else if (format == "tensorboard") {
      PENSTOCK_RETURN_IF_ERROR(add(event_file_, RecordLayout::kTensorboard,
                                   TensorboardHeader(submitted_s_), TensorboardRecord));
    } else {
      PENSTOCK_RETURN_IF_ERROR(
          add("metrics.jsonl", RecordLayout::kJsonLines, "", StepRecordJsonLine));
    }
  }
  return absl::OkStatus();
}

absl::Status RecordedJob::WriteAll() {
  if (outputs_.empty()) PENSTOCK_RETURN_IF_ERROR(OpenAll());
  for (Output& output : outputs_) {
    std::string bytes;
    for (const StepRecord& record : unwritten_) bytes += output.encode(record);
    PENSTOCK_RETURN_IF_ERROR(output.file.Append(bytes));
  }
  return absl::OkStatus();
}

RecordedJob::State RecordedJob::state() const {
  MutexLock lock(mutex_);
  return state_;
}

void RecordedJob::AwaitIdle(CondVar::Clock::time_point until) {
  MutexLock lock(mutex_);
  while (state_.busy && changed_.WaitUntil(mutex_, until)) {
  }
}

}  // namespace penstock
