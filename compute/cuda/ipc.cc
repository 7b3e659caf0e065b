#include "compute/cuda/ipc.h"

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status.h"
#include "compute/cuda/error.h"

namespace penstock::cuda {
namespace {

using Uuid = std::array<char, 16>;
using BootId = std::array<char, 36>;
using Nonce = std::array<uint32_t, 4>;

constexpr std::array<char, 8> kMagic = {'c', 'u', 'd', 'a', 'i', 'p', 'c', '1'};

// Memory with known content, for an importer to try. Two, because small allocations share a page of memory
// and only one can lie at its start.
struct Probe {
  cudaIpcMemHandle_t memory;
  Nonce content;
};
struct Offer {
  std::array<char, 8> magic;
  BootId boot;  // of the host
  int32_t zero;
  Uuid gpu;
  std::array<Probe, 2> probes;
};
static_assert(sizeof(Offer) == 224);

struct Descriptor {
  cudaIpcMemHandle_t memory;
  int64_t size_bytes;  // of the block
};
static_assert(sizeof(Descriptor) == 72);

// Different on each host and each start of one, also in containers. Errors: Unavailable.
absl::StatusOr<BootId> ReadBootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  BootId id = {};
  if (!file.read(id.data(), id.size())) {
    return absl::UnavailableError("/proc/sys/kernel/random/boot_id cannot be read");
  }
  return id;
}

Uuid UuidOf(const CudaContext& cuda) {
  Uuid uuid;
  std::memcpy(uuid.data(), cuda.properties().uuid.bytes, uuid.size());
  return uuid;
}

absl::Status Choose(int device) { return ToStatus(cudaSetDevice(device), "choosing the device"); }

// ------------------------------------------------------------------------------------------ exporter

class IpcExporter final : public Exporter {
 public:
  static absl::StatusOr<std::shared_ptr<Exporter>> Create(CudaContext& cuda) {
    std::shared_ptr<IpcExporter> exporter(new IpcExporter(cuda.device()));
    Offer offer = {.magic = kMagic, .gpu = UuidOf(cuda)};
    PENSTOCK_ASSIGN_OR_RETURN(offer.boot, ReadBootId());
    // Kernels queued so far may still work on the blocks that the pool gives.
    PENSTOCK_RETURN_IF_ERROR(cuda.WaitForStream("memory to be exported"));
    std::random_device random;
    for (size_t i = 0; i < offer.probes.size(); ++i) {
      Probe& probe = offer.probes[i];
      for (uint32_t& word : probe.content) word = random();
      Buffer& memory = exporter->probes_[i];
      memory = cuda.pool().Acquire(sizeof(Nonce));
      if (!memory) return absl::ResourceExhaustedError("no device memory to try exporting with");
      PENSTOCK_RETURN_IF_ERROR(ToStatus(
          cudaMemcpy(memory.data(), probe.content.data(), sizeof(Nonce), cudaMemcpyHostToDevice),
          "writing memory to be exported"));
      PENSTOCK_ASSIGN_OR_RETURN(probe.memory, exporter->HandleOf(memory.data()));
    }
    // A copy from memory that is not page-locked returns before it has reached the device, and only this process's
    // streams would wait for it.
    PENSTOCK_RETURN_IF_ERROR(ToStatus(cudaDeviceSynchronize(), "writing memory to be exported"));
    exporter->offer_ = ShareBytes::From(offer);
    return std::shared_ptr<Exporter>(std::move(exporter));
  }

  const ShareBytes& offer() const override { return offer_; }

  absl::StatusOr<ShareBytes> Describe(const Tensor& tensor) override {
    tensor.buffer.KeepInPool();  // the handle stays known here, and the memory open at the importer
    PENSTOCK_ASSIGN_OR_RETURN(const cudaIpcMemHandle_t memory, HandleOf(tensor.data<void>()));
    return ShareBytes::From(Descriptor{memory, tensor.buffer.size_bytes()});
  }

 private:
  explicit IpcExporter(int device) : device_(device) {}

  absl::StatusOr<cudaIpcMemHandle_t> HandleOf(void* block) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    const auto known = handles_.find(block);
    if (known != handles_.end()) return known->second;
    PENSTOCK_RETURN_IF_ERROR(Choose(device_));
    cudaIpcMemHandle_t handle;
    if (const cudaError_t error = cudaIpcGetMemHandle(&handle, block); error != cudaSuccess) {
      (void)cudaGetLastError();  // told here
      return absl::UnavailableError(ToStatus(error, "naming memory to be exported").message());
    }
    handles_.emplace(block, handle);
    return handle;
  }

  const int device_;
  ShareBytes offer_;
  std::array<Buffer, 2> probes_;
  Mutex mutex_;
  std::unordered_map<void*, cudaIpcMemHandle_t> handles_ ABSL_GUARDED_BY(mutex_);  // by block
};

// ---------------------------------------------------------------------------------------- importer

// Memory of other processes, opened. Any thread, one at a time.
class OpenedMemory {
 public:
  explicit OpenedMemory(int device) : device_(device) {}
  ~OpenedMemory() {
    (void)cudaSetDevice(device_);
    for (const Block& block : blocks_) (void)cudaIpcCloseMemHandle(block.data);
  }
  OpenedMemory(const OpenedMemory&) = delete;
  OpenedMemory& operator=(const OpenedMemory&) = delete;

  // Where `memory`, of at least `size_bytes`, lies here.
  absl::StatusOr<void*> Find(const cudaIpcMemHandle_t& memory, int64_t size_bytes) {
    auto block = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& known) {
      return std::memcmp(&known.memory, &memory, sizeof(memory)) == 0;
    });
    if (block == blocks_.end()) {
      PENSTOCK_RETURN_IF_ERROR(Open(memory));
      block = blocks_.end() - 1;
    }
    if (size_bytes <= block->size_bytes) return block->data;
    return absl::InvalidArgumentError(absl::StrCat(
        "a tensor of ", size_bytes, " bytes is exported in a block of ", block->size_bytes));
  }

 private:
  // A pool has a few blocks of one size for each message of the window.
  static constexpr size_t kBlocksMax = 4096;

  struct Block {
    cudaIpcMemHandle_t memory;
    void* data = nullptr;
    int64_t size_bytes = 0;  // from `data` to the end of what was opened
  };

  absl::Status Open(const cudaIpcMemHandle_t& memory) {
    if (blocks_.size() >= kBlocksMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the peer exports more than ", kBlocksMax, " blocks of memory"));
    }
    PENSTOCK_RETURN_IF_ERROR(Choose(device_));
    Block block = {.memory = memory};
    const cudaError_t error =
        cudaIpcOpenMemHandle(&block.data, memory, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) {
      (void)cudaGetLastError();  // told here
      return absl::UnavailableError(
          ToStatus(error, "opening memory that a peer exports").message());
    }
    blocks_.push_back(block);
    PENSTOCK_ASSIGN_OR_RETURN(blocks_.back().size_bytes, SizeFrom(block.data));
    return absl::OkStatus();
  }

  // Bytes from `data` to the end of its allocation, as the driver knows it, whatever the peer says.
  static absl::StatusOr<int64_t> SizeFrom(void* data) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    PENSTOCK_RETURN_IF_ERROR(
        ToStatus(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &entry, 12000,
                                                  cudaEnableDefault, &found),
                 "looking for cuMemGetAddressRange"));
    if (entry == nullptr || found != cudaDriverEntryPointSuccess) {
      return absl::UnavailableError("the driver has no cuMemGetAddressRange");
    }
    CUdeviceptr base = 0;
    size_t size_bytes = 0;
    const auto address = reinterpret_cast<CUdeviceptr>(data);
    const CUresult result =
        reinterpret_cast<decltype(&cuMemGetAddressRange)>(entry)(&base, &size_bytes, address);
    if (result != CUDA_SUCCESS) {
      return absl::UnavailableError(
          absl::StrCat("cuMemGetAddressRange: error ", static_cast<int>(result)));
    }
    return static_cast<int64_t>(base + size_bytes - address);
  }

  const int device_;
  std::vector<Block> blocks_;
};

class IpcImporter final : public Importer {
 public:
  IpcImporter(CudaContext& cuda, Copies& copies)
      : cuda_(cuda), copies_(copies), opened_(cuda.device()) {}
  ~IpcImporter() override {
    if (!fetched_) return;
    const absl::StatusOr<int64_t> ticket = copies_.tickets().Record(cuda_.copy_in());
    if (ticket.ok()) (void)copies_.tickets().Await(*ticket, "copies of exported tensors");
  }

  absl::Status Try(const Offer& offer) {
    for (const Probe& probe : offer.probes) {
      PENSTOCK_ASSIGN_OR_RETURN(void* memory, opened_.Find(probe.memory, sizeof(Nonce)));
      Nonce content = {};
      PENSTOCK_RETURN_IF_ERROR(
          ToStatus(cudaMemcpy(content.data(), memory, sizeof(Nonce), cudaMemcpyDeviceToHost),
                   "reading memory that a peer exports"));
      if (content == probe.content) continue;
      return absl::UnavailableError("memory that a peer exports has another content here");
    }
    path_ = offer.gpu == UuidOf(cuda_) ? "cuda-ipc" : "peer";
    return absl::OkStatus();
  }

  const char* path() const override { return path_; }

  absl::StatusOr<Fetched> Fetch(const ShareBytes& bytes, DType dtype, const Shape& shape) override {
    Descriptor descriptor;
    if (!bytes.To(descriptor)) {
      return absl::InvalidArgumentError(absl::StrCat("an exported tensor is described in ",
                                                     bytes.view().size(), " bytes; expected ",
                                                     sizeof(Descriptor)));
    }
    const int64_t size_bytes = shape.elements() * SizeOf(dtype);
    if (size_bytes > descriptor.size_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a tensor of ", size_bytes, " bytes is exported in a block of ", descriptor.size_bytes));
    }
    PENSTOCK_ASSIGN_OR_RETURN(const void* exported, opened_.Find(descriptor.memory, size_bytes));
    fetched_ = true;
    return copies_.Fetch(exported, dtype, shape);
  }

 private:
  CudaContext& cuda_;
  Copies& copies_;
  OpenedMemory opened_;
  const char* path_ = "";
  bool fetched_ = false;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Exporter>> IpcShare::MakeExporter() {
  if (exporter_ == nullptr) {
    PENSTOCK_ASSIGN_OR_RETURN(exporter_, IpcExporter::Create(cuda_));
  }
  return exporter_;
}

absl::StatusOr<Outgoing> IpcShare::StartExporting(const Tensor& tensor) {
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t ticket, copies_.tickets().Record(cuda_.stream()));
  return Outgoing{.device = tensor, .ticket = ticket};
}

absl::StatusOr<std::unique_ptr<Importer>> IpcShare::Import(const ShareBytes& bytes) {
  Offer offer;
  if (!bytes.To(offer) || offer.magic != kMagic) {
    return absl::InvalidArgumentError("the peer's offer is not one of CUDA memory");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const BootId boot, ReadBootId());
  if (offer.boot != boot) return absl::UnavailableError("the peer is on another host");
  PENSTOCK_RETURN_IF_ERROR(Choose(cuda_.device()));
  auto importer = std::make_unique<IpcImporter>(cuda_, copies_);
  PENSTOCK_RETURN_IF_ERROR(importer->Try(offer));
  return importer;
}

}  // namespace penstock::cuda
