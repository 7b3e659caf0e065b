#include "worker/job_tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status.h"
#include "tokenizer/limits.h"

namespace penstock {

absl::StatusOr<JobTokenizer> OpenJobTokenizer(const DataRequest& request, absl::string_view key,
                                              const std::string& path, const std::string& sha256,
                                              const Port& port) {
  const absl::StatusOr<std::string> file =
      FindTokenizerFile(request.files, JoinPath(request.root, path));
  if (!file.ok()) return Annotate(file.status(), key);
  absl::StatusOr<std::string> content =
      ReadFileOfJob(request.files, *file, sha256, kTokenizerFileBytesMax);
  if (!content.ok()) return Annotate(content.status(), key);
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      ParseTokenizerFile(request.files, *file, *content);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), key);
  if (port.ids > 0 && port.ids < (*tokenizer)->vocabulary_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": ", *file, " has ", (*tokenizer)->vocabulary_size(),
                     " tokens, but the model's input ", port.name, " takes ids below ", port.ids,
                     "; make the model's vocabulary as large"));
  }
  return JobTokenizer{*std::move(tokenizer), {UsualTokenizerName(*file), *std::move(content)}};
}

absl::StatusOr<std::string> DigestOfTokenizer(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string file, FindTokenizerFile(RealFiles(), path));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string content,
                            RealFiles().Read(file, kTokenizerFileBytesMax));
  return Sha256Hex(content);
}

}  // namespace penstock
