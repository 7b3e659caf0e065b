// TokenSequence: the tokens of a text or of files, as one sequence in which any window can be read.
//
// Thread safety: immutable; all methods may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace penstock {

class TokenSequence {
 public:
  virtual ~TokenSequence() = default;

  virtual int64_t tokens() const = 0;
  // Fills `ids` with the tokens from `first` on. REQUIRES: they exist.
  // Errors: those of the disk; InvalidArgument or DataLoss (what is stored there is no token).
  virtual absl::Status Copy(int64_t first, absl::Span<int32_t> ids) const = 0;
  // Says that Copy will soon be asked for these, so that a disk can begin to read them. REQUIRES: they exist.
  virtual void WillNeed(int64_t /*first*/, int64_t /*count*/) const {}
};

// A text of which every byte is a token.
class ByteTokens final : public TokenSequence {
 public:
  explicit ByteTokens(std::string text) : text_(std::move(text)) {}
  int64_t tokens() const override { return static_cast<int64_t>(text_.size()); }
  absl::Status Copy(int64_t first, absl::Span<int32_t> ids) const override;

 private:
  const std::string text_;
};

// Tokens in memory.
class StoredTokens final : public TokenSequence {
 public:
  explicit StoredTokens(std::vector<int32_t> ids) : ids_(std::move(ids)) {}
  int64_t tokens() const override { return static_cast<int64_t>(ids_.size()); }
  absl::Status Copy(int64_t first, absl::Span<int32_t> ids) const override;

 private:
  const std::vector<int32_t> ids_;
};

}  // namespace penstock
