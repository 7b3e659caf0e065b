#include "data/gettext_catalogue.h"

#include <iconv.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr uint32_t kMagic = 0x950412DE;
constexpr size_t kHeaderBytes = 20;
constexpr size_t kEntryBytes = 8;  // of a table
constexpr char kContextEnd = '\4';

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("is no gettext catalogue, or is cut short: ", what));
}

// The u32s of a file in its byte order.
class Words {
 public:
  Words(absl::string_view file, bool big_endian) : file_(file), big_endian_(big_endian) {}

  // REQUIRES: the file has four bytes at `offset`.
  uint32_t At(size_t offset) const {
    uint32_t word = 0;
    for (size_t i = 0; i < 4; ++i) {
      const auto byte = static_cast<unsigned char>(file_[offset + (big_endian_ ? i : 3 - i)]);
      word = word << 8 | byte;
    }
    return word;
  }

 private:
  absl::string_view file_;
  bool big_endian_;
};

// Entry `i` of the table at `table`. REQUIRES: the table lies within the file.
absl::StatusOr<absl::string_view> StringAt(absl::string_view file, const Words& words, size_t table,
                                           size_t i) {
  const uint64_t length = words.At(table + i * kEntryBytes);
  const uint64_t offset = words.At(table + i * kEntryBytes + 4);
  if (offset + length < file.size() && file[offset + length] == '\0') {
    return file.substr(offset, length);
  }
  return Damaged(absl::StrCat("string ", i, " with ", length, " bytes at ", offset,
                              " and a zero byte behind it is not within the ", file.size(),
                              " bytes of the file"));
}

// "Content-Type: text/plain; charset=UTF-8" -> "UTF-8"; without one, ASCII, which is UTF-8, too.
std::string CharacterSetOf(absl::string_view header) {
  for (const absl::string_view line : absl::StrSplit(header, '\n')) {
    if (!absl::StartsWithIgnoreCase(line, "content-type:")) continue;
    constexpr absl::string_view kKey = "charset=";
    const size_t key = line.find(kKey);
    if (key == absl::string_view::npos) continue;
    return std::string(absl::StripAsciiWhitespace(line.substr(key + kKey.size())));
  }
  return "UTF-8";
}

// Text of a character set as UTF-8; UTF-8 is checked.
class Utf8Converter {
 public:
  static absl::StatusOr<Utf8Converter> Create(const std::string& character_set) {
    const iconv_t handle = iconv_open("UTF-8", character_set.c_str());
    if (handle == reinterpret_cast<iconv_t>(-1)) {
      return absl::UnimplementedError(
          absl::StrCat("is in the character set \"", character_set,
                       "\", which is not known here; msgconv --to-code=UTF-8 converts its source"));
    }
    return Utf8Converter(handle, character_set);
  }
  Utf8Converter(Utf8Converter&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)),
        character_set_(std::move(other.character_set_)) {}
  Utf8Converter& operator=(Utf8Converter&&) = delete;
  ~Utf8Converter() {
    if (handle_ != nullptr) iconv_close(handle_);
  }

  absl::StatusOr<std::string> Convert(absl::string_view text) const {
    std::string converted;
    std::string in(text);
    char* from = in.data();
    size_t left = in.size();
    iconv(handle_, nullptr, nullptr, nullptr, nullptr);  // the state in which a text begins
    while (left > 0) {
      char piece[512];
      char* to = piece;
      size_t room = sizeof(piece);
      const bool failed = iconv(handle_, &from, &left, &to, &room) == static_cast<size_t>(-1);
      converted.append(piece, to);
      if (failed && (errno != E2BIG || to == piece)) {
        return absl::DataLossError(absl::StrCat("has a message that is not in its character set, ",
                                                character_set_, ", at byte ", in.size() - left,
                                                " of it"));
      }
    }
    return converted;
  }

 private:
  Utf8Converter(iconv_t handle, std::string character_set)
      : handle_(handle), character_set_(std::move(character_set)) {}

  iconv_t handle_;
  std::string character_set_;
};

absl::Status AddMessage(const Utf8Converter& to_utf8, absl::string_view original,
                        absl::string_view translation, std::vector<GettextMessage>& messages) {
  GettextMessage message;
  PENSTOCK_ASSIGN_OR_RETURN(message.original, to_utf8.Convert(original));
  PENSTOCK_ASSIGN_OR_RETURN(message.translation, to_utf8.Convert(translation));
  messages.push_back(std::move(message));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<GettextMessage>> ReadGettextCatalogue(absl::string_view file) {
  if (file.size() < kHeaderBytes) return Damaged(absl::StrCat("it has ", file.size(), " bytes"));
  const bool big_endian = Words(file, true).At(0) == kMagic;
  const Words words(file, big_endian);
  if (words.At(0) != kMagic) return Damaged("it does not begin with the magic number");
  const uint32_t major = words.At(4) >> 16;
  if (major > 1) {
    return absl::UnimplementedError(
        absl::StrCat("is a gettext catalogue of revision ", major, "; 0 and 1 can be read"));
  }
  const uint64_t strings = words.At(8);
  const uint64_t originals = words.At(12);
  const uint64_t translations = words.At(16);
  const uint64_t table_bytes = strings * kEntryBytes;
  if (strings > static_cast<uint64_t>(kCatalogueStringsMax) ||
      originals + table_bytes > file.size() || translations + table_bytes > file.size()) {
    return Damaged(absl::StrCat("tables of ", strings, " strings at ", originals, " and ",
                                translations, " are not within its ", file.size(), " bytes"));
  }

  std::string header;
  size_t text_bytes = 0;
  for (uint64_t i = 0; i < strings; ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(const absl::string_view original,
                              StringAt(file, words, originals, i));
    PENSTOCK_ASSIGN_OR_RETURN(const absl::string_view translation,
                              StringAt(file, words, translations, i));
    text_bytes += original.size() + translation.size();
    if (text_bytes > static_cast<size_t>(kCatalogueTextBytesMax)) {
      return Damaged(absl::StrCat("its strings have more than ", kCatalogueTextBytesMax,
                                  " bytes together, in a file of ", file.size()));
    }
    if (original.empty()) header = std::string(translation);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Utf8Converter to_utf8,
                            Utf8Converter::Create(CharacterSetOf(header)));

  std::vector<GettextMessage> messages;
  for (uint64_t i = 0; i < strings; ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(absl::string_view original, StringAt(file, words, originals, i));
    PENSTOCK_ASSIGN_OR_RETURN(const absl::string_view translation,
                              StringAt(file, words, translations, i));
    if (original.empty()) continue;
    original.remove_prefix(original.find(kContextEnd) + 1);  // npos + 1 is 0
    const std::vector<absl::string_view> numbers = absl::StrSplit(original, '\0');
    const std::vector<absl::string_view> forms = absl::StrSplit(translation, '\0');
    PENSTOCK_RETURN_IF_ERROR(AddMessage(to_utf8, numbers[0], forms[0], messages));
    if (numbers.size() != 2 || forms.size() != 2) continue;
    PENSTOCK_RETURN_IF_ERROR(AddMessage(to_utf8, numbers[1], forms[1], messages));
  }
  return messages;
}

}  // namespace penstock
