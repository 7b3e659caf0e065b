#include "worker/data_file.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/sha256.h"
#include "base/status.h"
#include "worker/text_data.h"
#include "worker/limits.h"
#include "worker/text_options.h"

namespace penstock {
namespace {

constexpr size_t kPieceBytes = 1 << 20;

absl::Status Error(absl::StatusCode code, const std::string& path, const char* what) {
  return absl::Status(code, absl::StrCat("data.text.path: ", path, " ", what,
                                         "; --data FILE names another text, --data-root the folder "
                                         "that relative paths start from"));
}

}  // namespace

std::string DataPath(const std::string& data_root, const v1::JobSpec& spec) {
  const std::string& path = spec.data().text().path();
  return data_root.empty() ? path : JoinPath(data_root, path);
}

absl::StatusOr<DataFile> InspectDataFile(const std::string& path,
                                         const std::function<bool()>& stop) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return Error(absl::StatusCode::kNotFound, path, "does not exist");
  }
  if (!std::filesystem::is_regular_file(path, error)) {
    return Error(absl::StatusCode::kInvalidArgument, path, "is not a file");
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return Error(absl::StatusCode::kPermissionDenied, path, "cannot be read");
  DataFile file = {.path = path};
  Sha256 sha256;
  std::vector<char> piece(kPieceBytes);
  while (stream.read(piece.data(), kPieceBytes), stream.gcount() > 0) {
    sha256.Update(piece.data(), static_cast<size_t>(stream.gcount()));
    file.size_bytes += stream.gcount();
    if (stop()) {
      return absl::CancelledError(absl::StrCat("interrupted while ", path, " was read"));
    }
  }
  if (file.size_bytes == 0) return Error(absl::StatusCode::kInvalidArgument, path, "is empty");
  file.sha256 = sha256.HexDigest();
  return file;
}

absl::Status EnterDigest(const DataFile& file, v1::JobSpec& spec) {
  v1::TextSpec& text = *spec.mutable_data()->mutable_text();
  if (!text.sha256().empty() && text.sha256() != file.sha256) {
    return absl::DataLossError(absl::StrCat("data.text.sha256: ", file.path, " has ", file.sha256,
                                            ", the job says ", text.sha256()));
  }
  text.set_sha256(file.sha256);
  return absl::OkStatus();
}

absl::Status CheckJobData(Files& files, const std::string& data_root, const ResolvedJob& job,
                          v1::JobSpec& spec, const std::function<bool()>& stop) {
  const std::string path = DataPath(data_root, spec);
  PENSTOCK_ASSIGN_OR_RETURN(const DataFile file, InspectDataFile(path, stop));
  PENSTOCK_RETURN_IF_ERROR(EnterDigest(file, spec));
  const absl::Status opened =
      TextData::Open(files, TextOptionsOf(spec, job, path, RunLimits().data_bytes_max))
          .status();
  return Annotate(opened, "data.text.path");
}

}  // namespace penstock
