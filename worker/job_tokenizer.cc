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
  absl::StatusOr<TokenizerFile> file = OpenTokenizerFile(
      request.files, JoinPath(request.root, path),
      [&](const TokenizerFile& read) { return CheckFileOfJob(read.path, read.content, sha256); });
  if (!file.ok()) return Annotate(file.status(), key);
  const int64_t tokens = file->tokenizer->vocabulary_size();
  if (port.ids > 0 && port.ids < tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        key, ": ", file->path, " has ", tokens, " tokens, but the model's input ", port.name,
        " takes ids below ", port.ids, "; make the model's vocabulary as large"));
  }
  return JobTokenizer{std::move(file->tokenizer),
                      {UsualTokenizerName(file->path), std::move(file->content)}};
}

absl::StatusOr<std::string> DigestOfTokenizer(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string file, FindTokenizerFile(RealFiles(), path));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string content,
                            RealFiles().Read(file, kTokenizerFileBytesMax));
  return Sha256Hex(content);
}

}  // namespace penstock
