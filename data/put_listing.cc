#include "data/put_listing.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/sha256.h"
#include "base/status.h"
#include "base/utf8.h"
#include "checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr char kListingFormat[] = "penstock-directory";
constexpr size_t kNamesInMessage = 8;

absl::StatusOr<PutEntry> EntryOf(const Json& json) {
  const auto is = [&](const char* key, auto predicate) {
    const auto found = json.is_object() ? json.find(key) : json.end();
    return json.is_object() && found != json.end() && predicate(*found);
  };
  if (!is("name", [](const Json& name) { return name.is_string(); })) {
    return absl::InvalidArgumentError("a file has no name");
  }
  PutEntry entry = {.name = json.at("name").get<std::string>()};
  const std::string shown = CleanUtf8(entry.name, 200);
  if (const absl::Status below = CheckNameBelow(entry.name); !below.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("the file \"", shown, "\" ", below.message()));
  }
  if (!is("bytes", [](const Json& bytes) {
        return bytes.is_number_unsigned() && bytes.get<uint64_t>() <= uint64_t{1} << 60;
      })) {
    return absl::InvalidArgumentError(absl::StrCat("the file ", shown, " has no number of bytes"));
  }
  entry.size_bytes = static_cast<int64_t>(json.at("bytes").get<uint64_t>());
  if (!is("sha256", [](const Json& sha256) {
        return sha256.is_string() && IsSha256Hex(sha256.get_ref<const std::string&>());
      })) {
    return absl::InvalidArgumentError(absl::StrCat("the file ", shown, " has no SHA-256"));
  }
  entry.sha256 = json.at("sha256").get<std::string>();
  return entry;
}

// A name that is both a file and a directory, or there twice. REQUIRES: `files` are in order.
absl::Status CheckTree(const std::vector<PutEntry>& files) {
  std::set<absl::string_view> names;
  for (const PutEntry& entry : files) {
    if (names.insert(entry.name).second) continue;
    return absl::InvalidArgumentError(absl::StrCat("the file ", entry.name, " is there twice"));
  }
  for (const PutEntry& entry : files) {
    const absl::string_view name = entry.name;
    for (size_t slash = name.find('/'); slash != name.npos; slash = name.find('/', slash + 1)) {
      if (names.count(name.substr(0, slash)) == 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(name.substr(0, slash), " is a file and the directory of ", name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

const PutEntry* PutListing::Find(absl::string_view name) const {
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const auto& entry) { return entry.name == name; });
  return found == files.end() ? nullptr : &*found;
}

std::vector<const PutEntry*> PutListing::At(absl::string_view name) const {
  std::vector<const PutEntry*> at;
  const std::string below = absl::StrCat(name, "/");
  for (const PutEntry& entry : files) {
    if (name.empty() || entry.name == name || absl::StartsWith(entry.name, below)) {
      at.push_back(&entry);
    }
  }
  if (!at.empty() || !HasPattern(name)) return at;
  const std::string pattern(name);
  for (const PutEntry& entry : files) {
    const bool fits = fnmatch(pattern.c_str(), entry.name.c_str(), FNM_PATHNAME | FNM_PERIOD) == 0;
    if (fits) at.push_back(&entry);
  }
  return at;
}

bool HasPattern(absl::string_view name) {
  return name.find_first_of("*?[", name.rfind('/') + 1) != name.npos;  // npos + 1 is 0
}

std::string NameBelow(absl::string_view name, absl::string_view directory) {
  if (directory.empty()) return std::string(name);
  absl::string_view below = name;
  const bool is_below = absl::ConsumePrefix(&below, directory) && absl::ConsumePrefix(&below, "/");
  return is_below ? std::string(below) : "";
}

absl::StatusOr<PutListing> ParsePutListing(absl::string_view text) {
  PENSTOCK_ASSIGN_OR_RETURN(const Json json, ParseStrictJson(text, JsonLimits()));
  const auto format = json.is_object() ? json.find("format") : json.end();
  if (!json.is_object() || format == json.end() || *format != kListingFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("is no list of a directory; expected {\"format\": \"", kListingFormat,
                     "\", ...}, as `penstock data put DIR` writes it"));
  }
  const auto files = json.find("files");
  if (files == json.end() || !files->is_array() || files->empty() ||
      files->size() > static_cast<size_t>(kPutFilesMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("files: expected a list of 1 to ", kPutFilesMax, " files"));
  }
  PutListing listing;
  for (const Json& file : *files) {
    PENSTOCK_ASSIGN_OR_RETURN(PutEntry entry, EntryOf(file));
    listing.files.push_back(std::move(entry));
  }
  std::sort(listing.files.begin(), listing.files.end(),
            [](const PutEntry& a, const PutEntry& b) { return a.name < b.name; });
  PENSTOCK_RETURN_IF_ERROR(CheckTree(listing.files));
  return listing;
}

std::string PrintPutListing(const PutListing& listing) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const PutEntry& entry : listing.files) {
    files.push_back({{"name", entry.name}, {"bytes", entry.size_bytes}, {"sha256", entry.sha256}});
  }
  return nlohmann::ordered_json({{"format", kListingFormat}, {"files", std::move(files)}}).dump(1) +
         "\n";
}

absl::StatusOr<PutListing> ReadPutListing(const PutReadCall& read, const PutPath& put) {
  const std::string directory = PutPath{put.sha256, true}.ToString();
  const absl::StatusOr<std::string> text = read(put.sha256, kPutListingBytesMax);
  if (!text.ok()) return text.status();
  absl::StatusOr<PutListing> listing = ParsePutListing(*text);
  if (!listing.ok()) return Annotate(listing.status(), directory);
  return listing;
}

absl::Status NotInPutDirectory(const PutPath& put, const PutListing& listing) {
  std::set<std::string> names;  // directly below it
  for (const PutEntry& entry : listing.files)
    names.insert(entry.name.substr(0, entry.name.find('/')));
  std::string shown;
  for (const std::string& name : names) {
    if (shown.size() > kNamesInMessage * 24) {
      absl::StrAppend(&shown, ", ...");
      break;
    }
    absl::StrAppend(&shown, shown.empty() ? "" : ", ", name);
  }
  return absl::NotFoundError(
      absl::StrCat("sha256:", put.sha256, "/ has no ", put.name, "; it has ", shown));
}

absl::StatusOr<std::string> PutFiles::Read(const std::string& path, int64_t size_bytes_max) {
  if (!IsPutPath(path)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is nothing that was put"));
  }
  const absl::StatusOr<PutPath> put = ParsePutPath(path);
  if (!put.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", put.status().message()));
  }
  if (!put->is_directory) return read_(put->sha256, size_bytes_max);
  PENSTOCK_ASSIGN_OR_RETURN(const PutListing listing, ReadPutListing(read_, *put));
  const PutEntry* const entry = listing.Find(put->name);
  if (entry == nullptr) return NotInPutDirectory(*put, listing);
  if (entry->size_bytes > size_bytes_max) {
    return absl::OutOfRangeError(absl::StrCat(path, " has ", entry->size_bytes,
                                              " bytes; expected at most ", size_bytes_max));
  }
  if (entry->size_bytes == 0) return std::string();
  absl::StatusOr<std::string> content = read_(entry->sha256, size_bytes_max);
  if (!content.ok()) return Annotate(content.status(), path);
  return content;
}

}  // namespace penstock
