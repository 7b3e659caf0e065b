#include "services/coordinator/checkpoint_parts.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/fault_points.h"
#include "base/full_disk.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "checkpoint/limits.h"
#include "checkpoint/manifest.h"
#include "services/rpc/data_part.h"
#include "services/rpc/limits.h"

namespace penstock {
namespace {

std::string PartOf(const std::string& path) { return absl::StrCat(path, kStagedPartEnding); }

absl::Status CheckWrite(const v1::WritePartRequest& request) {
  const std::string& path = request.path();
  if (!IsStagedFilePath(path) || absl::EndsWith(path, kStagedPartEnding)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a worker may not write \"", path.substr(0, 200),
        "\": expected a file in the staging directory of an attempt, such as step-N.tmp-TAG/NAME"));
  }
  const auto bytes = static_cast<int64_t>(request.bytes().size());
  const int64_t size_bytes = request.size_bytes();
  if (size_bytes < 0 || size_bytes > kCheckpointFileBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": a file of ", size_bytes, " bytes; expected 0 to ", kCheckpointFileBytesMax));
  }
  if (bytes > rpc_limits::kDataPartBytesMax || request.offset() < 0 ||
      request.offset() > size_bytes || bytes > size_bytes - request.offset() ||
      (bytes == 0 && size_bytes > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": a part of ", bytes, " bytes at ", request.offset(), "; expected 1 to ",
        rpc_limits::kDataPartBytesMax, " bytes within the ", size_bytes, " bytes of the file"));
  }
  return absl::OkStatus();
}

// Whether the attempt that owned this staging directory has committed its checkpoint. A later attempt may save the same step
// again, so the manifest decides: it names the attempt.
bool IsCommitted(FileReader& files, const std::filesystem::path& staging) {
  const std::string name = staging.filename().string();
  const std::optional<StagingName> staged = ParseStagingDirectoryName(absl::string_view(name));
  if (!staged.has_value()) return false;
  const absl::StatusOr<Manifest> manifest =
      ReadManifest(files, (staging.parent_path() / StepDirectoryName(staged->step)).string());
  return manifest.ok() && StagingDirectoryName(manifest->step, StagingTag(manifest->job_id,
                                                                          manifest->epoch)) == name;
}

absl::Status SayWhatToDo(const absl::Status& status) {
  return FinalIfDiskIsFull(status, "free space on the coordinator's checkpoint disk");
}

}  // namespace

Mutex& CheckpointParts::MutexOf(const std::string& path) {
  return mutexes_[std::hash<std::string>()(path) % mutexes_.size()];
}

absl::Status CheckpointParts::Name(const std::string& path) {
  return SayWhatToDo(files_.RenameDurably(PartOf(path), path));
}

absl::StatusOr<bool> CheckpointParts::IsWhole(const std::string& path, int64_t size_bytes) {
  const absl::StatusOr<std::unique_ptr<RandomAccessFile>> file = files_.OpenRandomAccess(path);
  if (absl::IsNotFound(file.status())) return false;
  PENSTOCK_RETURN_IF_ERROR(file.status());
  return (*file)->size_bytes() == size_bytes;
}

absl::StatusOr<int64_t> CheckpointParts::HeldBytes(const std::string& path, int64_t size_bytes) {
  const absl::StatusOr<std::unique_ptr<RandomAccessFile>> part =
      files_.OpenRandomAccess(PartOf(path));
  if (absl::IsNotFound(part.status())) {
    // Its last part came, and the answer was lost; or nothing has come.
    PENSTOCK_ASSIGN_OR_RETURN(const bool is_whole, IsWhole(path, size_bytes));
    return is_whole ? size_bytes : 0;
  }
  PENSTOCK_RETURN_IF_ERROR(part.status());
  if ((*part)->size_bytes() < size_bytes) return (*part)->size_bytes();
  if ((*part)->size_bytes() > size_bytes) return 0;  // of another file
  // The coordinator ended when all had come, and before the file had its name.
  PENSTOCK_RETURN_IF_ERROR(Name(path));
  return size_bytes;
}

absl::Status CheckpointParts::Begin(const std::string& path) {
  const std::filesystem::path staging = std::filesystem::path(path).parent_path();
  // The job's directory was made when the coordinator claimed it for the job.
  if (const std::string root = staging.parent_path().string();
      !root.empty() && !files_.Exists(root)) {
    return absl::NotFoundError(absl::StrCat("cannot write ", path,
                                            ": the coordinator has no directory ", root,
                                            " below its --checkpoint-root"));
  }
  if (!files_.Exists(staging.string()) && IsCommitted(files_, staging)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write ", path,
                     ": its checkpoint is committed, and this part came late; expected a file of a "
                     "checkpoint that is still being staged"));
  }
  return files_.CreateDirectories(staging.string());
}

absl::StatusOr<v1::WritePartResponse> CheckpointParts::Write(const v1::WritePartRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckWrite(request));
  const std::string& path = request.path();
  v1::WritePartResponse response;
  MutexLock lock(MutexOf(path));
  if (request.offset() == 0) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool is_whole, IsWhole(path, request.size_bytes()));
    if (is_whole) {  // the part is a repeat
      response.set_held_bytes(request.size_bytes());
      return response;
    }
    PENSTOCK_RETURN_IF_ERROR(SayWhatToDo(Begin(path)));
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t held, HeldBytes(path, request.size_bytes()));
    response.set_held_bytes(held);
    if (held != request.offset()) return response;
  }
  PENSTOCK_FAULT_POINT_STATUS(kPartsBeforeWrite);
  PENSTOCK_RETURN_IF_ERROR(
      SayWhatToDo(files_.WriteEndDurably(PartOf(path), request.offset(), request.bytes())));
  PENSTOCK_FAULT_POINT(kPartsAfterWrite);
  response.set_held_bytes(request.offset() + static_cast<int64_t>(request.bytes().size()));
  if (response.held_bytes() == request.size_bytes()) {
    PENSTOCK_RETURN_IF_ERROR(Name(path));
  }
  return response;
}

absl::StatusOr<v1::ReadPartResponse> CheckpointParts::Read(const v1::ReadPartRequest& request) {
  const std::string& path = request.path();
  if (path.empty()) return absl::InvalidArgumentError("path is empty; expected that of a file");
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file,
                            files_.OpenRandomAccess(path));
  const int64_t size_bytes = file->size_bytes();
  if (request.offset() < 0 || request.offset() > size_bytes) {
    return absl::OutOfRangeError(absl::StrCat(
        path, " has ", size_bytes, " bytes, and was asked for those from ", request.offset()));
  }
  const int64_t bytes_max =
      std::clamp<int64_t>(request.bytes_max(), 1, rpc_limits::kDataPartBytesMax);
  std::string bytes(static_cast<size_t>(std::min(bytes_max, size_bytes - request.offset())), '\0');
  PENSTOCK_RETURN_IF_ERROR(file->Read(
      request.offset(), absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size())));
  v1::ReadPartResponse response;
  response.set_size_bytes(size_bytes);
  SetPart(std::move(bytes), response);
  return response;
}

}  // namespace penstock
