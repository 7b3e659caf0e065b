#include "compute/cpu/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/file_tree.h"
#include "base/mutex.h"
#include "base/status.h"
#include "compute/offload_store.h"

namespace penstock {
namespace {

constexpr std::array<char, 8> kOfferMagic = {'s', 'h', 'm', 'e', 'm', '0', '0', '1'};
constexpr char kFileName[] = "penstock-tensors";
// Copied and summed at a time, so that it is still in the cache.
constexpr int64_t kPieceBytes = 128 << 10;

using Nonce = std::array<uint32_t, 4>;

struct MemoryOffer {
  std::array<char, 8> magic;
  int64_t process;
  int64_t file;
  Nonce content;  // of the file's first page
};
struct BlockDescriptor {
  int64_t offset;  // of the tensor in the file
  uint32_t crc;
  uint32_t zero;
};

absl::Status SharingError(int error, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("shared memory: ", what, ": ", std::strerror(error)));
}

// Calls move(offset, bytes) for each piece of `size_bytes` bytes at `data`, to which it copies. Returns the CRC32C of them, or the
// first error.
template <typename Move>
absl::StatusOr<uint32_t> CopySummed(char* data, int64_t size_bytes, Move move) {
  uint32_t crc = 0;
  for (int64_t done = 0; done < size_bytes; done += kPieceBytes) {
    const int64_t piece = std::min(kPieceBytes, size_bytes - done);
    PENSTOCK_RETURN_IF_ERROR(move(done, piece));
    crc = Crc32c(data + done, piece, crc);
  }
  return crc;
}

// ------------------------------------------------------------------------------------------ exporter

// The file of this process, and its blocks. Blocks are never moved, and the room of one that was freed is not used again. Any
// thread.
class SharedFile final : public MemorySource {
 public:
  // Lives as long as the process, because blocks may outlive all who asked for them. Errors: Unavailable.
  static absl::StatusOr<SharedFile*> OfProcess() {
    static const absl::StatusOr<SharedFile*> file = Create();
    return file;
  }

  void* Allocate(int64_t size_bytes) override {
    const int64_t room = RoomInFile(size_bytes);
    MutexLock lock(mutex_);
    if (ftruncate(file_, end_ + room) != 0) return nullptr;
    void* const data = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_SHARED, file_, end_);
    if (data == MAP_FAILED) return nullptr;
    blocks_.emplace(data, Block{.offset = end_});
    end_ += room;
    return data;
  }

  void Free(void* data, int64_t size_bytes) override {
    const int64_t room = RoomInFile(size_bytes);
    MutexLock lock(mutex_);
    const auto block = blocks_.find(data);
    (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, block->second.offset, room);
    (void)munmap(data, room);
    blocks_.erase(block);
  }

  void NoteSum(const void* data, uint32_t crc) {
    MutexLock lock(mutex_);
    blocks_.at(data).crc = crc;
  }
  // Errors: InvalidArgument.
  absl::StatusOr<BlockDescriptor> Describe(const void* data) {
    MutexLock lock(mutex_);
    const auto block = blocks_.find(data);
    if (block == blocks_.end()) {
      return absl::InvalidArgumentError("the tensor is not in memory that is shared");
    }
    return BlockDescriptor{block->second.offset, block->second.crc, 0};
  }

  const MemoryOffer& offer() const { return offer_; }

 private:
  struct Block {
    int64_t offset = 0;
    uint32_t crc = 0;  // of the tensor that was last copied to it
  };

  SharedFile(int file, const MemoryOffer& offer) : file_(file), offer_(offer) {}

  static absl::StatusOr<SharedFile*> Create() {
    Descriptor file(memfd_create(kFileName, MFD_CLOEXEC));
    if (!file.ok()) return SharingError(errno, "memfd_create");
    MemoryOffer offer = {
        .magic = kOfferMagic, .process = getpid(), .file = file.get(), .content = {}};
    std::random_device random;
    for (uint32_t& word : offer.content) word = random();
    const bool made = ftruncate(file.get(), kFileAlignment) == 0 &&
                      pwrite(file.get(), offer.content.data(), sizeof(Nonce), 0) == sizeof(Nonce);
    if (made) return new SharedFile(file.Release(), offer);
    return SharingError(errno, "a file in memory cannot be made");
  }

  const int file_;
  const MemoryOffer offer_;
  Mutex mutex_;
  int64_t end_ ABSL_GUARDED_BY(mutex_) = kFileAlignment;
  std::unordered_map<const void*, Block> blocks_ ABSL_GUARDED_BY(mutex_);
};

class MemoryExporter final : public Exporter {
 public:
  // `counted_in`: the pool whose figures cover the memory of exported tensors, too.
  MemoryExporter(SharedFile& file, BufferPool& counted_in)
      : file_(file), offer_(ShareBytes::From(file.offer())), pool_(file, &counted_in) {
    pool_.HoldAtMost(kHeldBytes);
  }

  const ShareBytes& offer() const override { return offer_; }

  absl::StatusOr<ShareBytes> Describe(const Tensor& tensor) override {
    PENSTOCK_ASSIGN_OR_RETURN(const BlockDescriptor descriptor,
                              file_.Describe(tensor.buffer.data()));
    return ShareBytes::From(descriptor);
  }

  // The tensor in shared memory. Errors: ResourceExhausted.
  absl::StatusOr<Tensor> Copy(const Tensor& tensor) {
    Tensor shared = pool_.AcquireTensor(tensor.dtype, tensor.shape);
    if (!shared) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no shared memory for a tensor of ", tensor.size_bytes(), " bytes"));
    }
    char* const to = shared.data<char>();
    const auto copy = [&](int64_t offset, int64_t bytes) {
      std::memcpy(to + offset, tensor.data<char>() + offset, bytes);
      return absl::OkStatus();
    };
    PENSTOCK_ASSIGN_OR_RETURN(const uint32_t crc, CopySummed(to, tensor.size_bytes(), copy));
    file_.NoteSum(shared.buffer.data(), crc);
    return shared;
  }

 private:
  // Idle blocks beyond these go back to the system, as large messages are few.
  static constexpr int64_t kHeldBytes = int64_t{16} << 20;

  SharedFile& file_;
  const ShareBytes offer_;
  BufferPool pool_;
};

// ---------------------------------------------------------------------------------------- importer

// It reads, and maps nothing: what the exporter does to its file meanwhile is an error, and never a signal.
class MemoryImporter final : public Importer {
 public:
  MemoryImporter(BufferPool& pool, Descriptor file) : pool_(pool), file_(std::move(file)) {}

  // Errors: Unavailable.
  absl::Status Try(const MemoryOffer& offer) const {
    struct stat status;
    if (fstat(file_.get(), &status) != 0) return SharingError(errno, "the peer's file");
    Nonce content = {};
    const bool right = S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
                       pread(file_.get(), content.data(), sizeof(Nonce), 0) == sizeof(Nonce) &&
                       content == offer.content;
    if (right) return absl::OkStatus();
    return absl::UnavailableError("shared memory: the file is not the peer's; it may be elsewhere");
  }

  const char* path() const override { return "shared-memory"; }

  absl::StatusOr<Fetched> Fetch(const ShareBytes& bytes, DType dtype, const Shape& shape) override {
    BlockDescriptor descriptor;
    if (!bytes.To(descriptor)) {
      return absl::InvalidArgumentError(absl::StrCat("an exported tensor is described in ",
                                                     bytes.view().size(), " bytes; expected ",
                                                     sizeof(BlockDescriptor)));
    }
    Fetched fetched = {.tensor = pool_.AcquireTensor(dtype, shape)};
    if (!fetched.tensor) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for a tensor of ", shape.elements() * SizeOf(dtype), " bytes"));
    }
    char* const to = fetched.tensor.data<char>();
    const auto read = [&](int64_t offset, int64_t size) -> absl::Status {
      // Below zero again where the sum is too large.
      const auto from = static_cast<off_t>(static_cast<uint64_t>(descriptor.offset) +
                                           static_cast<uint64_t>(offset));
      if (pread(file_.get(), to + offset, size, from) == size) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat("no tensor of ", fetched.tensor.size_bytes(),
                                                     " bytes is exported at ", descriptor.offset));
    };
    PENSTOCK_ASSIGN_OR_RETURN(const uint32_t crc,
                              CopySummed(to, fetched.tensor.size_bytes(), read));
    if (crc == descriptor.crc) return fetched;
    return absl::InvalidArgumentError(
        "the checksum of a tensor in shared memory is not that of its descriptor");
  }

 private:
  BufferPool& pool_;
  const Descriptor file_;
};

// ------------------------------------------------------------------------------------------- share

class SharedMemory final : public DeviceShare {
 public:
  explicit SharedMemory(BufferPool& pool) : pool_(pool) {}

  absl::StatusOr<std::shared_ptr<Exporter>> MakeExporter() override {
    PENSTOCK_RETURN_IF_ERROR(Ensure());
    return std::shared_ptr<Exporter>(exporter_);
  }

  absl::StatusOr<Outgoing> StartExporting(const Tensor& tensor) override {
    PENSTOCK_RETURN_IF_ERROR(Ensure());
    Outgoing outgoing;
    PENSTOCK_ASSIGN_OR_RETURN(outgoing.device, exporter_->Copy(tensor));
    return outgoing;
  }

  absl::StatusOr<std::unique_ptr<Importer>> Import(const ShareBytes& bytes) override {
    MemoryOffer offer;
    if (!bytes.To(offer) || offer.magic != kOfferMagic) {
      return absl::InvalidArgumentError("not an offer of shared memory");
    }
    // What is at this place is opened only if it is a file of this kind, since opening a device could have effects.
    const std::string path = absl::StrCat("/proc/", offer.process, "/fd/", offer.file);
    char target[256];
    const ssize_t length = readlink(path.c_str(), target, sizeof(target));
    if (length < 0)
      return SharingError(errno, "the peer's file cannot be found, it may be on another host");
    if (!absl::StartsWith(absl::string_view(target, length), absl::StrCat("/memfd:", kFileName))) {
      return absl::UnavailableError("shared memory: the peer's file is not here");
    }
    Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.ok()) return SharingError(errno, "the peer's file cannot be opened");
    auto importer = std::make_unique<MemoryImporter>(pool_, std::move(file));
    PENSTOCK_RETURN_IF_ERROR(importer->Try(offer));
    return importer;
  }

 private:
  absl::Status Ensure() {
    if (exporter_ != nullptr) return absl::OkStatus();
    PENSTOCK_ASSIGN_OR_RETURN(SharedFile* const file, SharedFile::OfProcess());
    exporter_ = std::make_shared<MemoryExporter>(*file, pool_);
    return absl::OkStatus();
  }

  BufferPool& pool_;
  std::shared_ptr<MemoryExporter> exporter_;
};

}  // namespace

std::unique_ptr<DeviceShare> MakeSharedMemory(BufferPool& pool) {
  return std::make_unique<SharedMemory>(pool);
}

}  // namespace penstock
