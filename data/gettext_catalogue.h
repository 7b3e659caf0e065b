// GettextCatalogue: the messages of a compiled gettext catalogue, a `.mo` file.
//
//   u32 magic 0x950412DE, which also tells the byte order; u32 revision, of which the upper half must be 0 or 1
//   u32 strings N; u32 offset of the originals' table; u32 offset of the translations' table; more that is not needed
//   each table: N times u32 length, u32 offset of a string that ends with a zero byte
//
// An original may be CONTEXT '\4' TEXT and have a plural behind a zero byte; a translation then has its forms behind zero
// bytes. The translation of the empty original is a header that names the character set. The format:
// https://www.gnu.org/software/gettext/manual/html_node/MO-Files.html
//
// Plain functions. The reader trusts nothing: tables and strings must lie within the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

inline constexpr int64_t kCatalogueBytesMax = int64_t{256} << 20;
inline constexpr int64_t kCatalogueStringsMax = int64_t{1} << 22;
// Of all strings together: many may be at one place of the file.
inline constexpr int64_t kCatalogueTextBytesMax = int64_t{512} << 20;

struct GettextMessage {
  std::string original;
  std::string translation;

  friend bool operator==(const GettextMessage&, const GettextMessage&) = default;
};

// The messages in UTF-8, in the file's order, without contexts and without the header. One with a plural is two: the
// original with the first form, and its plural with the second, as languages with two forms have them; where a
// translation has another number of forms, the plural is left out.
// Errors: DataLoss (no such file, or one that is cut or damaged, or not of its character set), Unimplemented (a revision
// or character set that is not known).
absl::StatusOr<std::vector<GettextMessage>> ReadGettextCatalogue(absl::string_view file);

}  // namespace penstock
