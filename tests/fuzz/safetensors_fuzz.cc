// Safetensors files: the reader from memory and the one from an open file agree, tensors lie within the file without gap
// or overlap, and what was read makes the same file again.
#include <cstring>
#include <string>
#include <vector>

#include "checkpoint/limits.h"
#include "checkpoint/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

namespace penstock {
namespace {

class FuzzedFile final : public RandomAccessFile {
 public:
  explicit FuzzedFile(absl::string_view bytes) : bytes_(bytes) {}
  int64_t size_bytes() const override { return static_cast<int64_t>(bytes_.size()); }
  absl::Status Read(int64_t offset, absl::Span<std::byte> bytes) const override {
    PENSTOCK_CHECK(offset >= 0 && offset <= size_bytes());
    const absl::string_view part = bytes_.substr(offset, bytes.size());
    if (part.size() < bytes.size()) return absl::DataLossError("ends before");
    std::memcpy(bytes.data(), part.data(), part.size());
    return absl::OkStatus();
  }

 private:
  const absl::string_view bytes_;
};

void CheckTensors(const SafetensorsView& view, const SafetensorsLayout& layout,
                  absl::string_view file) {
  PENSTOCK_CHECK(view.tensors.size() == layout.tensors.size());
  PENSTOCK_CHECK(static_cast<int64_t>(view.tensors.size()) <= kSafetensorsTensorsMax);
  const char* next = nullptr;
  for (size_t i = 0; i < view.tensors.size(); ++i) {
    const TensorView& tensor = view.tensors[i];
    PENSTOCK_CHECK(tensor.bytes.data() >= file.data() &&
                   tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size());
    PENSTOCK_CHECK(next == nullptr || tensor.bytes.data() == next);
    next = tensor.bytes.data() + tensor.bytes.size();
    PENSTOCK_CHECK(layout.tensors[i].offset == tensor.bytes.data() - file.data());
    PENSTOCK_CHECK(layout.tensors[i].type.name == tensor.name);
  }
  PENSTOCK_CHECK(next == nullptr || next == file.data() + file.size());
}

// The same tensors, written as Penstock writes them.
std::string WrittenAgain(const SafetensorsView& view) {
  std::vector<TensorType> types;
  for (const TensorView& tensor : view.tensors) {
    types.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  std::string file = SafetensorsHeaderFor(types, view.metadata);
  for (const TensorView& tensor : view.tensors) {
    file.append(tensor.bytes.data(), tensor.bytes.size());
  }
  return file;
}

}  // namespace
}  // namespace penstock

PENSTOCK_FUZZ_TARGET(safetensors) {
  using namespace penstock;
  const absl::string_view file = FuzzBytes(data, size).rest();
  const absl::StatusOr<SafetensorsView> view = ParseSafetensors(file);
  const absl::StatusOr<SafetensorsLayout> layout = ReadSafetensorsLayout(FuzzedFile(file));
  PENSTOCK_CHECK(view.ok() == layout.ok());
  const bool copied = ReadSafetensors(file).ok();
  PENSTOCK_CHECK(view.ok() || !copied);
  if (!view.ok()) return 0;
  FuzzAccepted();
  CheckTensors(*view, *layout, file);
  const std::string again = WrittenAgain(*view);
  const absl::StatusOr<SafetensorsView> read = ParseSafetensors(again);
  PENSTOCK_CHECK(read.ok());
  PENSTOCK_CHECK(read->metadata == view->metadata);
  PENSTOCK_CHECK(WrittenAgain(*read) == again);
  return 0;
}
