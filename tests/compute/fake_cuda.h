// FakeCuda: CUDA's run-time library as the test plays it, for the order of work on streams: its functions,
// defined in fake_cuda.cc, take the place of the real ones in a program that is not linked with them.
//
// Memory of the device is the host's, and so is that of other processes. A copy that is not queued leaves the host at
// once and reaches the device when the device is waited for. What is queued on a stream waits until the test lets it go on; a capture
// refuses what a real one does. Of cuDNN only its being started is played, of cuBLASLt its
// choice of algorithms, and what products compute (played_products.h).
//
// Thread safety: one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

namespace penstock::fake_cuda {

// Queues `kernel`, or writes it down if the stream is being captured.
void Launch(cudaStream_t stream, std::function<void()> kernel);

// From now on streams wait for Run, or (false, as at first) do their work when somebody asks about it.
void Hold(bool hold);
// Does all that can be done on this stream alone.
void Run(cudaStream_t stream);
void RunAll();

// The next call of this function fails.
void FailNext(const std::string& function, cudaError_t error = cudaErrorUnknown);

// From now on calls that ask about work fail with this error, as after an error of a kernel; not any more with cudaSuccess.
void Stick(cudaError_t error);

// What the device has left besides allocations, 1 GiB at first.
void SetFreeMemory(int64_t bytes);

// The algorithms that cuBLASLt's heuristics propose, the first first: how long a product by each takes; negative: it fails.
void SetProductTimes(std::vector<float> ms);
// From now on they propose none for a product with an epilogue, or again some.
void RefuseEpilogues(bool refuse);
// Which of them products took since the last call.
std::vector<int> TakeProducts();

// How often it was called.
int Calls(const std::string& function);

// Forgets failures to come, and lets all streams run.
void Reset();

}  // namespace penstock::fake_cuda
