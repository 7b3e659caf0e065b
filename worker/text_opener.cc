// data.text: which of the model's ports the tokens fill, and the digest of a text.
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/sha256.h"
#include "base/status.h"
#include "job/keys/limits.h"
#include "worker/data_opener.h"
#include "worker/text_data.h"

namespace penstock {
namespace {

constexpr size_t kPieceBytes = 1 << 20;

// Finds the ports that tokens fill: the targets are what the loss reads last.
absl::Status FindTextPorts(const ModelGraph& model, TextOptions& options) {
  const std::vector<Port>& ports = model.ports;
  const int targets = model.nodes.back().inputs.back();
  const bool fits = ports.size() == 2 && ports[0].type == ports[1].type &&
                    ports[0].type.dtype == DType::kI32 && ports[0].type.dims.size() == 1 &&
                    model.is_port(targets);
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a text gives tokens, i32 [context], and those after them as targets, but the model reads ",
        absl::StrJoin(ports, ", ",
                      [](std::string* text, const Port& port) {
                        absl::StrAppend(text, port.name, " ", port.type.ToString());
                      }),
        "; data.records fills any inputs"));
  }
  for (const Port& port : ports) {
    if (port.ids == 0 || port.ids >= kByteTokens) continue;
    return absl::InvalidArgumentError(absl::StrCat("the model's input ", port.name, " takes ",
                                                   port.ids, " tokens, but the tokenizer \"bytes\" ",
                                                   "has ", kByteTokens));
  }
  options.targets_port = targets;
  options.tokens_port = 1 - targets;
  options.context = ports[0].type.dims[0];
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DataSource>> OpenText(const DataRequest& request) {
  const v1::TextSpec& text = request.spec.data().text();
  TextOptions options = {.path = JoinPath(request.root, text.path()),
                         .sha256 = text.sha256(),
                         .validation_fraction = text.validation_fraction(),
                         .needs_validation = request.spec.validation().every_steps() > 0,
                         .validation_windows = request.validation_samples(),
                         .seed = request.job.seed,
                         .size_bytes_max = request.limits.data_bytes_max};
  PENSTOCK_RETURN_IF_ERROR(FindTextPorts(request.job.model, options));
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
