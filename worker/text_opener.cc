// data.text: a text for the model's ports (job/data/text_kind.cc checks that they are tokens and targets), and its digest.
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "worker/data_opener.h"
#include "worker/text_data.h"

namespace penstock {
namespace {

constexpr size_t kPieceBytes = 1 << 20;

absl::StatusOr<std::unique_ptr<DataSource>> OpenText(const DataRequest& request) {
  const v1::TextSpec& text = request.spec.data().text();
  const bool in_streams = request.evaluated.has_value()
                              ? request.job.model.FindCarrying() != nullptr
                              : text.order() == "contiguous";
  const TextOptions options = {.path = JoinPath(request.root, text.path()),
                               .sha256 = text.sha256(),
                               .validation_fraction = text.validation_fraction(),
                               .context = request.job.model.ports[TextData::kTokens].type.dims[0],
                               .needs_validation = request.validates(),
                               .validation_windows = request.validation_samples(),
                               .streams = in_streams ? request.job.batch : 0,
                               .evaluated = request.evaluated,
                               .seed = request.job.seed,
                               .size_bytes_max = request.limits.data_bytes_max};
  return TextData::Open(request.files, options);
}

absl::StatusOr<std::string> DigestOfText(const std::string& path,
                                         const std::function<bool()>& stop) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  }
  if (!std::filesystem::is_regular_file(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a file"));
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return absl::PermissionDeniedError(absl::StrCat(path, " cannot be read"));
  Sha256 sha256;
  bool is_empty = true;
  std::vector<char> piece(kPieceBytes);
  while (stream.read(piece.data(), kPieceBytes), stream.gcount() > 0) {
    sha256.Update(piece.data(), static_cast<size_t>(stream.gcount()));
    is_empty = false;
    if (stop()) {
      return absl::CancelledError(absl::StrCat("interrupted while ", path, " was read"));
    }
  }
  if (is_empty) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  return sha256.HexDigest();
}

}  // namespace

const DataOpener kTextOpener = {
    .source = v1::DataSpec::kText, .open = OpenText, .digest = DigestOfText};

}  // namespace penstock
