#include "data/image_sets.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "data/record_writer.h"

namespace penstock {
namespace {

constexpr int64_t kFileBytesMax = int64_t{2} << 30;

// What one or two files hold: pixels [count, height, width, channels], and a label each.
struct Images {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  std::string pixels;
  std::vector<int32_t> labels;
};

// Files that belong together, by their names.
using FileGroup = std::vector<std::string>;
struct Part {
  const char* name;
  std::vector<FileGroup> groups;
};

struct ImageSet {
  const char* name;
  std::vector<Part> parts;
  // `contents`: of the files of a group.
  absl::StatusOr<Images> (*decode)(const std::vector<std::string>& contents);
};

// The sizes and the values of a file in MNIST's format: two zero bytes, 8 for bytes, the number of dimensions, each
// dimension in four bytes with the highest first, then the values.
struct IdxArray {
  std::vector<int64_t> dims;
  absl::string_view values;
};

absl::StatusOr<IdxArray> DecodeIdx(absl::string_view content, size_t dimensions) {
  const std::string head = {0, 0, 8, static_cast<char>(dimensions)};
  const size_t head_bytes = 4 + 4 * dimensions;
  if (content.size() < head_bytes || content.substr(0, 4) != head) {
    return absl::DataLossError(
        absl::StrCat("does not begin as an idx file of bytes with ", dimensions, " dimensions; ",
                     "files that end in .gz have to be unpacked with gunzip"));
  }
  IdxArray array;
  int64_t count = 1;
  for (size_t i = 0; i < dimensions; ++i) {
    int64_t dim = 0;
    for (size_t byte = 0; byte < 4; ++byte) {
      dim = dim << 8 | static_cast<unsigned char>(content[4 + 4 * i + byte]);
    }
    array.dims.push_back(dim);
    // At most 2^31 bytes follow, so that a product of more is wrong, and does not get far enough to overflow.
    count = std::min(count * dim, kFileBytesMax + 1);
  }
  array.values = content.substr(head_bytes);
  if (static_cast<int64_t>(array.values.size()) != count || count == 0) {
    return absl::DataLossError(absl::StrCat("has ", array.values.size(), " values, but says [",
                                            absl::StrJoin(array.dims, ", "), "]"));
  }
  return array;
}

absl::StatusOr<Images> DecodeMnist(const std::vector<std::string>& contents) {
  PENSTOCK_ASSIGN_OR_RETURN(const IdxArray pixels, DecodeIdx(contents[0], 3));
  PENSTOCK_ASSIGN_OR_RETURN(const IdxArray labels, DecodeIdx(contents[1], 1));
  if (pixels.dims[0] != labels.dims[0]) {
    return absl::DataLossError(
        absl::StrCat("has ", pixels.dims[0], " images, but there are ", labels.dims[0], " labels"));
  }
  Images images = {.height = pixels.dims[1],
                   .width = pixels.dims[2],
                   .channels = 1,
                   .pixels = std::string(pixels.values)};
  for (const char label : labels.values) images.labels.push_back(static_cast<unsigned char>(label));
  return images;
}

// CIFAR's records: `label_bytes`, of which the last is the class, then a plane of 32 x 32 for each colour.
absl::StatusOr<Images> DecodeCifar(absl::string_view content, size_t label_bytes) {
  constexpr size_t kSide = 32;
  constexpr size_t kPlane = kSide * kSide;
  constexpr size_t kChannels = 3;
  const size_t record_bytes = label_bytes + kChannels * kPlane;
  if (content.empty() || content.size() % record_bytes != 0) {
    return absl::DataLossError(absl::StrCat("has ", content.size(), " bytes, which is no multiple ",
                                            "of ", record_bytes, ", the size of an image"));
  }
  Images images = {.height = kSide, .width = kSide, .channels = kChannels};
  images.pixels.reserve(content.size());
  for (; !content.empty(); content.remove_prefix(record_bytes)) {
    images.labels.push_back(static_cast<unsigned char>(content[label_bytes - 1]));
    for (size_t pixel = 0; pixel < kPlane; ++pixel) {
      for (size_t channel = 0; channel < kChannels; ++channel) {
        images.pixels.push_back(content[label_bytes + channel * kPlane + pixel]);
      }
    }
  }
  return images;
}

absl::StatusOr<Images> DecodeCifar10(const std::vector<std::string>& contents) {
  return DecodeCifar(contents[0], 1);
}

absl::StatusOr<Images> DecodeCifar100(const std::vector<std::string>& contents) {
  return DecodeCifar(contents[0], 2);  // 20 coarse classes, then 100 fine ones
}

const std::vector<ImageSet>& ImageSets() {
  static const auto* const sets = new std::vector<ImageSet>{
      {"MNIST",
       {{"train", {{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}}},
        {"test", {{"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}}}},
       DecodeMnist},
      {"CIFAR-10",
       {{"train",
         {{"data_batch_1.bin"},
          {"data_batch_2.bin"},
          {"data_batch_3.bin"},
          {"data_batch_4.bin"},
          {"data_batch_5.bin"}}},
        {"test", {{"test_batch.bin"}}}},
       DecodeCifar10},
      {"CIFAR-100", {{"train", {{"train.bin"}}}, {"test", {{"test.bin"}}}}, DecodeCifar100}};
  return *sets;
}

std::vector<std::string> FilesOf(const ImageSet& set) {
  std::vector<std::string> names;
  for (const Part& part : set.parts) {
    for (const FileGroup& group : part.groups) {
      names.insert(names.end(), group.begin(), group.end());
    }
  }
  return names;
}

// The set of which the most files are there.
absl::StatusOr<const ImageSet*> FindSet(Files& files, const std::string& from) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> there, files.List(from));
  std::vector<std::string> known;
  for (const ImageSet& set : ImageSets()) {
    const std::vector<std::string> names = FilesOf(set);
    std::vector<std::string> missing;
    for (const std::string& name : names) {
      if (std::find(there.begin(), there.end(), name) == there.end()) missing.push_back(name);
    }
    if (missing.empty()) return &set;
    if (missing.size() < names.size()) {
      return absl::NotFoundError(absl::StrCat(from, " has files of ", set.name, ", but lacks ",
                                              absl::StrJoin(missing, ", ")));
    }
    known.push_back(absl::StrCat(set.name, " (", absl::StrJoin(names, ", "), ")"));
  }
  return absl::NotFoundError(
      absl::StrCat(from, " has the files of no set that is known: ", absl::StrJoin(known, ", "),
                   "; files that end in .gz have to be unpacked first"));
}

absl::StatusOr<Images> ReadGroup(Files& files, const ImageSet& set, const std::string& from,
                                 const FileGroup& group) {
  std::vector<std::string> contents;
  for (const std::string& name : group) {
    PENSTOCK_ASSIGN_OR_RETURN(contents.emplace_back(),
                              files.Read(JoinPath(from, name), kFileBytesMax));
  }
  absl::StatusOr<Images> images = set.decode(contents);
  if (!images.ok()) return Annotate(images.status(), JoinPath(from, absl::StrJoin(group, ", ")));
  return images;
}

absl::Status AddImages(const Images& images, RecordWriter& writer) {
  const int64_t image_bytes = images.height * images.width * images.channels;
  for (size_t i = 0; i < images.labels.size(); ++i) {
    const char* const pixels = images.pixels.data() + static_cast<int64_t>(i) * image_bytes;
    const std::array<absl::Span<const std::byte>, 2> values = {
        absl::MakeSpan(reinterpret_cast<const std::byte*>(pixels), image_bytes),
        absl::MakeSpan(reinterpret_cast<const std::byte*>(&images.labels[i]), sizeof(int32_t))};
    PENSTOCK_RETURN_IF_ERROR(writer.Add(values));
  }
  return absl::OkStatus();
}

// `done`: files, of `all`; it goes on.
absl::StatusOr<PreparedPart> PreparePart(Files& files, const ImageSet& set, const Part& part,
                                         const PrepareOptions& options, int64_t& done,
                                         int64_t all) {
  PreparedPart prepared = {.directory = JoinPath(options.to, part.name)};
  std::unique_ptr<RecordWriter> writer;
  Images first;  // without pixels: its sizes
  for (const FileGroup& group : part.groups) {
    PENSTOCK_ASSIGN_OR_RETURN(const Images images, ReadGroup(files, set, options.from, group));
    if (writer == nullptr) {
      first = {.height = images.height, .width = images.width, .channels = images.channels};
      PENSTOCK_ASSIGN_OR_RETURN(
          writer,
          RecordWriter::Create(files, prepared.directory,
                               {{"image", "U8", {images.height, images.width, images.channels}},
                                {"label", "I32", {}}},
                               options.shard_bytes_max));
    }
    if (images.height != first.height || images.width != first.width) {
      return absl::DataLossError(absl::StrCat(JoinPath(options.from, group.front()),
                                              " has images of another size than the file before"));
    }
    PENSTOCK_RETURN_IF_ERROR(AddImages(images, *writer));
    done += static_cast<int64_t>(group.size());
    if (options.progress) PENSTOCK_RETURN_IF_ERROR(options.progress(done, all, group.front()));
  }
  PENSTOCK_ASSIGN_OR_RETURN(prepared.index, writer->Finish());
  return prepared;
}

}  // namespace

absl::StatusOr<PreparedImages> PrepareImages(Files& files, const PrepareOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const ImageSet* const set, FindSet(files, options.from));
  PreparedImages prepared = {.set = set->name};
  const auto all = static_cast<int64_t>(FilesOf(*set).size());
  int64_t done = 0;
  for (const Part& part : set->parts) {
    PENSTOCK_ASSIGN_OR_RETURN(prepared.parts.emplace_back(),
                              PreparePart(files, *set, part, options, done, all));
  }
  return prepared;
}

}  // namespace penstock
