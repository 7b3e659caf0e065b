// DeviceShare: processes of one host exchange tensors of their devices past the network: between GPUs zero-copy (CUDA IPC),
// between CPUs through memory that both have mapped (compute/cpu/shared_memory.h).
//
// The holder of a tensor exports it: a descriptor of a few bytes names its memory, and travels by any way to
// the importer, which fetches the tensor with a copy from device to device. No device ever waits for another
// process, which may be gone: the exporter sends the descriptor when its device has written the tensor, and
// writes there again only after the importer has said that its copy is done. docs/adr/0009 says why.
//
//   exporter                                         importer
//   MakeExporter, offer()            ── offer ──▶    Import: really opens what is offered, or says why not
//   StartExporting, Poll, Describe   ── descriptor ▶ Fetch, Poll
//   drops its reference            ◀── done ──
//
// Offers and descriptors come from the network: any bytes are safe to try. Descriptors from a malicious
// peer can make a run fail, and show it the memory of its own that they name.
//
// Thread safety: the thread that owns the back-end, except where stated.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compute/tensor.h"
#include "compute/transfers.h"

namespace penstock {

// An offer or a descriptor. It has a fixed size, so that a message allocates nothing.
class ShareBytes {
 public:
  static constexpr int kMax = 256;

  ShareBytes() = default;
  // Errors: InvalidArgument (longer than kMax).
  static absl::StatusOr<ShareBytes> Of(absl::string_view bytes);
  // REQUIRES: `T` is a plain struct of at most kMax bytes.
  template <typename T>
  static ShareBytes From(const T& value) {
    static_assert(sizeof(T) <= kMax);
    ShareBytes bytes;
    std::memcpy(bytes.data_.data(), &value, sizeof(T));
    bytes.size_ = sizeof(T);
    return bytes;
  }
  // False if the size is another one.
  template <typename T>
  bool To(T& value) const {
    if (size_ != static_cast<int>(sizeof(T))) return false;
    std::memcpy(&value, data_.data(), sizeof(T));
    return true;
  }

  bool empty() const { return size_ == 0; }
  absl::string_view view() const { return {data_.data(), static_cast<size_t>(size_)}; }
  friend bool operator==(const ShareBytes& a, const ShareBytes& b) { return a.view() == b.view(); }

 private:
  std::array<char, kMax> data_ = {};
  int size_ = 0;
};

// Exports tensors of one back-end. May outlive it: while it lives, all memory that the back-end's pool took
// from the device stays.
class Exporter {
 public:
  virtual ~Exporter() = default;
  virtual const ShareBytes& offer() const = 0;
  // Names the memory of a tensor from the back-end's pool. Any thread. Errors: of the device.
  virtual absl::StatusOr<ShareBytes> Describe(const Tensor& tensor) = 0;
};

// Fetches tensors from one exporter. Its end waits for the copies that are under way.
// REQUIRES: the back-end outlives it.
class Importer {
 public:
  virtual ~Importer() = default;
  // "cuda-ipc" from the same device, "peer" from another, "shared-memory" between CPUs. Any thread.
  virtual const char* path() const = 0;

  struct Fetched {
    Tensor tensor;               // later calls of the back-end see it whole
    int64_t ticket = kNoTicket;  // Transfers::Poll: when the exporter may have its memory back
  };
  // Errors: InvalidArgument (not a descriptor, or the tensor is larger than what is exported),
  // ResourceExhausted, of the device.
  virtual absl::StatusOr<Fetched> Fetch(const ShareBytes& descriptor, DType dtype,
                                        const Shape& shape) = 0;
};

class DeviceShare {
 public:
  virtual ~DeviceShare() = default;

  // Every call returns the same one. Errors: Unavailable (the system does not export), ResourceExhausted.
  virtual absl::StatusOr<std::shared_ptr<Exporter>> MakeExporter() = 0;
  // Returns a ticket for the moment when the calls so far are done and `tensor` may be exported.
  // Errors: of the device.
  virtual absl::StatusOr<Outgoing> StartExporting(const Tensor& tensor) = 0;

  // Opens memory of the exporter and reads it, so that what is found to work here works later. Any thread.
  // Errors: Unavailable (another host, no common memory), InvalidArgument (not an offer).
  virtual absl::StatusOr<std::unique_ptr<Importer>> Import(const ShareBytes& offer) = 0;
};

}  // namespace penstock
