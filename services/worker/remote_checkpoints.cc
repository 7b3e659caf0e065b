#include "services/worker/remote_checkpoints.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "services/rpc/data_part.h"
#include "services/rpc/data_patience.h"
#include "services/worker/part_transfer.h"

namespace penstock {
namespace {

// The coordinator may lose what it said to hold with its machine, but not for ever.
constexpr int kStepsBackMax = 16;

int64_t SizeOf(absl::Span<const absl::string_view> pieces) {
  int64_t size_bytes = 0;
  for (const absl::string_view piece : pieces) size_bytes += static_cast<int64_t>(piece.size());
  return size_bytes;
}

// The `size_bytes` from `offset` on of what the pieces are one after the other. REQUIRES: they have them.
std::string BytesAt(absl::Span<const absl::string_view> pieces, int64_t offset,
                    int64_t size_bytes) {
  std::string bytes;
  bytes.reserve(static_cast<size_t>(size_bytes));
  for (const absl::string_view piece : pieces) {
    const auto size = static_cast<int64_t>(piece.size());
    if (offset < size) {
      const size_t missing = static_cast<size_t>(size_bytes) - bytes.size();
      absl::StrAppend(&bytes, piece.substr(static_cast<size_t>(offset), missing));
    }
    offset = std::max<int64_t>(offset - size, 0);
  }
  return bytes;
}

}  // namespace

class RemoteCheckpoints::RunFiles final : public FileStore {
 public:
  RunFiles(RemoteCheckpoints& remote, std::function<absl::Status()> may_go_on)
      : remote_(remote), may_go_on_(std::move(may_go_on)) {}

  absl::StatusOr<std::string> Read(const std::string& path, int64_t size_bytes_max) override {
    std::string content;
    PENSTOCK_RETURN_IF_ERROR(Explain(absl::StrCat("cannot read ", path, " from the coordinator"),
                                     TransferParts(
                                         may_go_on_,
                                         [&](int64_t part_bytes_max) {
                                           return ReadPart(path, part_bytes_max, size_bytes_max,
                                                           content);
                                         },
                                         remote_.patience_)));
    return content;
  }

  // The coordinator makes the directory of a file with its first part.
  absl::Status CreateDirectories(const std::string& /*path*/) override { return absl::OkStatus(); }

  absl::Status WriteDurably(const std::string& path,
                            absl::Span<const absl::string_view> pieces) override {
    int64_t held = 0;
    int steps_back = 0;
    const auto write = [&](int64_t part_bytes_max) -> absl::StatusOr<bool> {
      const int64_t before = held;
      PENSTOCK_ASSIGN_OR_RETURN(const bool over, WritePart(path, pieces, part_bytes_max, held));
      if (over || held > before || ++steps_back <= kStepsBackMax) return over;
      return absl::FailedPreconditionError(
          absl::StrCat("its disk has lost again and again what it held; it holds ", held,
                       " bytes, and held ", before));
    };
    return Explain(absl::StrCat("cannot write ", path, " to the coordinator"),
                   TransferParts(may_go_on_, write, remote_.patience_));
  }

 private:
  // Adds the part that follows on `content`. Returns whether that is all.
  absl::StatusOr<bool> ReadPart(const std::string& path, int64_t part_bytes_max,
                                int64_t size_bytes_max, std::string& content) {
    const auto held = static_cast<int64_t>(content.size());
    v1::ReadPartRequest request;
    request.set_path(path);
    request.set_offset(held);
    request.set_bytes_max(part_bytes_max);
    PENSTOCK_ASSIGN_OR_RETURN(const v1::ReadPartResponse part,
                              remote_.calls_.read(request, kPartCallTimeout));
    PENSTOCK_RETURN_IF_ERROR(CheckPart(part));
    if (part.size_bytes() > size_bytes_max) {
      return absl::OutOfRangeError(absl::StrCat("it has ", part.size_bytes(),
                                                " bytes, more than the limit of ", size_bytes_max));
    }
    const auto size = static_cast<int64_t>(part.bytes().size());
    if (size > part.size_bytes() - held || (size == 0 && held < part.size_bytes())) {
      return absl::FailedPreconditionError(absl::StrCat("it changed while it was read: of its ",
                                                        part.size_bytes(), " bytes ", size,
                                                        " came at ", held));
    }
    content.reserve(static_cast<size_t>(part.size_bytes()));
    content.append(part.bytes());
    ++remote_.parts_;
    return held + size == part.size_bytes();
  }

  // Sends the part at `held`, which then says what the coordinator holds. Returns whether that is all.
  absl::StatusOr<bool> WritePart(const std::string& path,
                                 absl::Span<const absl::string_view> pieces, int64_t part_bytes_max,
                                 int64_t& held) {
    const int64_t size_bytes = SizeOf(pieces);
    v1::WritePartRequest request;
    request.set_path(path);
    request.set_size_bytes(size_bytes);
    request.set_offset(held);
    SetPart(BytesAt(pieces, held, std::min(part_bytes_max, size_bytes - held)), request);
    PENSTOCK_ASSIGN_OR_RETURN(const v1::WritePartResponse response,
                              remote_.calls_.write(request, kPartCallTimeout));
    if (response.held_bytes() < 0 || response.held_bytes() > size_bytes) {
      return absl::InternalError(absl::StrCat("it says that it holds ", response.held_bytes(),
                                              " of ", size_bytes, " bytes"));
    }
    held = response.held_bytes();
    return held == size_bytes;
  }

  // Says what could not be done. A run that is stopped keeps its reason. An error that might have passed is one of the way
  // there, and never of the file: DataLoss of a part says nothing about the checkpoint.
  absl::Status Explain(const std::string& what, const absl::Status& status) const {
    if (status.ok() || !DataPatience::Passes(status)) return Annotate(status, what);
    PENSTOCK_RETURN_IF_ERROR(may_go_on_());
    return absl::UnavailableError(absl::StrCat(what, ": nothing got through for ",
                                               absl::FormatDuration(remote_.patience_), ": ",
                                               status.message()));
  }

  RemoteCheckpoints& remote_;
  const std::function<absl::Status()> may_go_on_;
};

std::unique_ptr<FileStore> RemoteCheckpoints::ForRun(std::function<absl::Status()> may_go_on) {
  parts_ = 0;
  return std::make_unique<RunFiles>(*this, std::move(may_go_on));
}

}  // namespace penstock
