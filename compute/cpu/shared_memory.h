// Tensors between workers that compute on the CPUs of one host: through memory that both have mapped instead of the network.
//
// The exporter copies a tensor into a block of an unnamed file in memory (memfd_create), the importer reads it from there, and
// verifies the CRC32C that came with the descriptor. No byte of it passes a socket or TLS. Who may have it is settled
// twice: the offer and the descriptors come over the stream, whose ends have authenticated each other, and the system lets
// only processes of the same user (and of one process namespace, as /proc shows it) open the file. A random number at the start
// of the file, which the offer has, too, shows that it is the right one. It is gone with the processes that have it open.
//
// Copies are done when calls return, so there are no tickets.
#pragma once

#include <memory>

#include "compute/buffer_pool.h"
#include "compute/device_share.h"

namespace penstock {

// Fetched tensors take memory from `pool`, whose figures cover the exported ones, too. It outlives the share.
std::unique_ptr<DeviceShare> MakeSharedMemory(BufferPool& pool);

}  // namespace penstock
