// OrderLog: in which order one worker ran the forwards and backwards of a range, and nothing else.
//
// On every stage the forwards come in ascending order of microbatches, and so do the backwards. So which
// stage and which of the two is all that has to be kept of a block: with one stage on the worker, a bit. The
// rest follows by counting: the n-th forward of a stage is of the n-th microbatch of the range that comes to it. To one of
// r replicas every r-th microbatch comes.
//
// A value; thread-compatible. Its memory is taken once, for the whole range.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "schedule/schedule.h"

namespace penstock {

// A forward with its messages, or a whole backward (I, W) with its messages, of the next microbatch of a
// stage that had none.
struct OrderBlock {
  StageId stage;
  bool backward = false;

  friend bool operator==(const OrderBlock&, const OrderBlock&) = default;
};

// "2F", "0B".
std::string ToString(const OrderBlock& block);

class OrderLog {
 public:
  OrderLog() = default;
  // An empty log. `replicas`: of each of the worker's stages. REQUIRES: `stages` are ascending, one at least; the range
  // is a multiple of the replicas.
  OrderLog(std::vector<StageId> stages, MicrobatchRange range, int32_t replicas = 1);

  // The inverse of bytes(), for any range and bytes. REQUIRES: `stages` as above; replicas are 1 or more. Errors:
  // InvalidArgument if there are more or fewer bytes than the range needs, or a block is of no stage.
  static absl::StatusOr<OrderLog> FromBytes(std::vector<StageId> stages, MicrobatchRange range,
                                            absl::string_view bytes, int32_t replicas = 1);

  const std::vector<StageId>& stages() const { return stages_; }
  const MicrobatchRange& range() const { return range_; }
  // The blocks that a complete log has: a forward and a backward of every stage and microbatch.
  int64_t size_complete() const { return SizeComplete(stages_.size(), range_.count / replicas_); }
  int64_t size() const { return size_; }

  // Allocates nothing. REQUIRES: size() < size_complete(); the stage is one of stages().
  void Append(const OrderBlock& block);
  // REQUIRES: 0 <= index < size().
  OrderBlock At(int64_t index) const;
  // The range was cut short. REQUIRES: no more blocks than that has.
  void Shorten(int64_t microbatches);

  // Lowest bit first, all blocks of the same number of bits; what is left of the last byte is 0.
  const std::string& bytes() const { return bytes_; }
  // The size of a complete log of this many microbatches that come to the stages.
  static int64_t BytesComplete(size_t stages, int64_t microbatches);

  friend bool operator==(const OrderLog&, const OrderLog&) = default;

 private:
  static int64_t SizeComplete(size_t stages, int64_t microbatches) {
    return 2 * static_cast<int64_t>(stages) * microbatches;
  }

  std::vector<StageId> stages_;
  MicrobatchRange range_;
  int32_t replicas_ = 1;
  int bits_ = 1;  // of a block: its stage's index, then whether it is a backward in the lowest
  int64_t size_ = 0;
  std::string bytes_;
};

}  // namespace penstock
