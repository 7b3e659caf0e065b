#include "tests/compute/fake_cuda.h"

#include <cublasLt.h>
#include <cuda.h>
#include <cudnn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compute/cuda/convolution.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/sdpa.h"
#include "tests/compute/played_products.h"

// ------------------------------------------------------------------------- the types CUDA leaves open

struct CUevent_st {
  int64_t recorded = 0;  // moments so far, and those that have happened
  int64_t happened = 0;
  float ms = 0.0f;  // the device's time of the last
};
struct CUgraph_st {
  std::vector<std::function<void()>> kernels;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> kernels;
};
struct CUstream_st {
  struct Work {
    std::function<void()> kernel;  // or
    CUevent_st* record = nullptr;  // or
    CUevent_st* wait = nullptr;
    int64_t moment = 0;  // of the event
  };
  std::deque<Work> work;
  bool capturing = false;
  bool capture_broken = false;
  CUgraph_st captured;
};

namespace penstock::fake_cuda {
namespace {

struct State {
  bool hold = false;
  float now_ms = 0.0f;
  std::vector<float> product_ms = {1.0f};
  std::vector<int> products;
  bool refuses_epilogues = false;
  cudaError_t sticky = cudaSuccess;
  int64_t free_bytes = int64_t{1} << 30;
  cudaError_t last_error = cudaSuccess;
  std::map<std::string, cudaError_t> fail_next;
  std::map<std::string, int> calls;
  std::set<cudaStream_t> streams;
  std::vector<std::function<void()>> copies_on_their_way;  // to the device
  std::map<void*, size_t> allocated;                       // bytes
};
State& Fake() {
  static State& state = *new State;
  return state;
}

PlayedDescription* Played(cublasLtMatmulDesc_t description) {
  return reinterpret_cast<PlayedDescription*>(description);
}
PlayedLayout* Played(cublasLtMatrixLayout_t layout) {
  return reinterpret_cast<PlayedLayout*>(layout);
}

cudaError_t Return(cudaError_t error) {
  if (error != cudaSuccess) Fake().last_error = error;
  return error;
}

// Counts a call; its error if it is to fail.
cudaError_t Called(const std::string& function) {
  ++Fake().calls[function];
  const auto failure = Fake().fail_next.find(function);
  if (failure == Fake().fail_next.end()) return cudaSuccess;
  const cudaError_t error = failure->second;
  Fake().fail_next.erase(failure);
  return Return(error);
}

// What may not happen while this thread captures.
cudaError_t Unsafe(const std::string& function) {
  for (cudaStream_t stream : Fake().streams) {
    if (!stream->capturing) continue;
    stream->capture_broken = true;
    return Return(cudaErrorStreamCaptureUnsupported);
  }
  return Called(function);
}

CUresult AddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  const auto block = Fake().allocated.find(reinterpret_cast<void*>(address));
  if (block == Fake().allocated.end()) return CUDA_ERROR_INVALID_VALUE;
  *base = address;
  *bytes = block->second;
  return CUDA_SUCCESS;
}

bool Step(cudaStream_t stream) {
  if (stream->work.empty()) return false;
  CUstream_st::Work& first = stream->work.front();
  if (first.wait != nullptr && first.wait->happened < first.moment) return false;
  const CUstream_st::Work work = std::move(first);
  stream->work.pop_front();
  if (work.kernel) work.kernel();
  if (work.record != nullptr) {
    work.record->happened = std::max(work.record->happened, work.moment);
    work.record->ms = Fake().now_ms;
  }
  return true;
}

}  // namespace

void Launch(cudaStream_t stream, std::function<void()> kernel) {
  if (stream->capturing) {
    stream->captured.kernels.push_back(std::move(kernel));
  } else {
    stream->work.push_back({.kernel = std::move(kernel)});
  }
}
void Hold(bool hold) { Fake().hold = hold; }
void Run(cudaStream_t stream) {
  while (Step(stream)) {
  }
}
void RunAll() {
  bool progress = true;
  while (progress) {
    progress = false;
    for (cudaStream_t stream : Fake().streams) {
      while (Step(stream)) progress = true;
    }
  }
}
void FailNext(const std::string& function, cudaError_t error) {
  Fake().fail_next[function] = error;
}
void SetProductTimes(std::vector<float> ms) { Fake().product_ms = std::move(ms); }
void RefuseEpilogues(bool refuse) { Fake().refuses_epilogues = refuse; }
std::vector<int> TakeProducts() { return std::exchange(Fake().products, {}); }
void Stick(cudaError_t error) { Fake().sticky = error; }
void SetFreeMemory(int64_t bytes) { Fake().free_bytes = bytes; }
int Calls(const std::string& function) { return Fake().calls[function]; }
void Reset() {
  Fake().fail_next.clear();
  Fake().refuses_epilogues = false;
  Fake().last_error = cudaSuccess;
  Fake().hold = false;
  Fake().sticky = cudaSuccess;
  Fake().product_ms = {1.0f};
  Fake().products.clear();
  Fake().free_bytes = int64_t{1} << 30;
  RunAll();
}

}  // namespace penstock::fake_cuda

using namespace penstock::
    fake_cuda;  // NOLINT(google-build-using-namespace): of the functions below

extern "C" {

// ------------------------------------------------------------------------------- devices and memory

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return Called("cudaSetDevice"); }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "a played GPU");
  properties->major = 9;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = Called("cudaDeviceSynchronize"); error != cudaSuccess) return error;
  for (const auto& copy : std::exchange(Fake().copies_on_their_way, {})) copy();
  return RunAll(), cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (const cudaError_t error = Unsafe("cudaMalloc"); error != cudaSuccess) return error;
  *data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  Fake().allocated[*data] = bytes;
  return cudaSuccess;
}
cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  return std::memset(data, value, bytes), Called("cudaMemset");
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (const cudaError_t error = Called("cudaMemGetInfo"); error != cudaSuccess) return error;
  *free = Fake().free_bytes;
  *total = size_t{100} << 30;
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  (void)Called("cudaFree");
  Fake().allocated.erase(data);
  return std::free(data), cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) { return cudaMalloc(data, bytes); }
cudaError_t cudaFreeHost(void* data) { return cudaFree(data); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (const cudaError_t error = Called("cudaMemcpyAsync"); error != cudaSuccess) return error;
  Launch(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = Called("cudaMemcpy"); error != cudaSuccess) return error;
  if (kind != cudaMemcpyHostToDevice) return std::memcpy(to, from, bytes), cudaSuccess;
  const auto* const begin = static_cast<const char*>(from);
  Fake().copies_on_their_way.push_back([to, staged = std::vector<char>(begin, begin + bytes)] {
    std::memcpy(to, staged.data(), staged.size());
  });
  return cudaSuccess;
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* data) {
  if (const cudaError_t error = Called("cudaIpcGetMemHandle"); error != cudaSuccess) return error;
  *handle = {};
  std::memcpy(handle, &data, sizeof(data));
  return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** data, cudaIpcMemHandle_t handle, unsigned) {
  if (const cudaError_t error = Called("cudaIpcOpenMemHandle"); error != cudaSuccess) return error;
  std::memcpy(data, &handle, sizeof(*data));
  return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void*) { return Called("cudaIpcCloseMemHandle"); }
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = reinterpret_cast<void*>(&AddressRange);  // the one that is asked for
  *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(Fake().last_error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorStreamCaptureUnsupported ? "cudaErrorStreamCaptureUnsupported" : "error";
}
const char* cudaGetErrorString(cudaError_t) { return "as the test wants it"; }

// -------------------------------------------------------------------------------- streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  Fake().streams.insert(*stream = new CUstream_st);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Fake().streams.erase(stream);
  return delete stream, cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (Fake().sticky != cudaSuccess) return Return(Fake().sticky);
  return stream->work.empty() ? cudaSuccess : Return(cudaErrorNotReady);
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return RunAll(), cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = new CUevent_st, cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  if (const cudaError_t error = Called("cudaEventCreate"); error != cudaSuccess) return error;
  return *event = new CUevent_st, cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t stop) {
  return *ms = stop->ms - start->ms, Called("cudaEventElapsedTime");
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t error = Unsafe("cudaEventRecord"); error != cudaSuccess) return error;
  stream->work.push_back({.record = event, .moment = ++event->recorded});
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const cudaError_t error = Unsafe("cudaStreamWaitEvent"); error != cudaSuccess) return error;
  stream->work.push_back({.wait = event, .moment = event->recorded});
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t error = Unsafe("cudaEventQuery"); error != cudaSuccess) return error;
  if (!Fake().hold) RunAll();
  return event->happened == event->recorded ? cudaSuccess : Return(cudaErrorNotReady);
}

// ------------------------------------------------------------------------------------------- graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (const cudaError_t error = Called("cudaStreamBeginCapture"); error != cudaSuccess)
    return error;
  stream->capturing = true;
  stream->capture_broken = false;
  stream->captured.kernels.clear();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  stream->capturing = false;
  *graph = nullptr;
  if (stream->capture_broken) return Return(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st(stream->captured);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  if (const cudaError_t error = Called("cudaGraphInstantiate"); error != cudaSuccess) return error;
  *made = new CUgraphExec_st{graph->kernels};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  if (const cudaError_t error = Called("cudaGraphLaunch"); error != cudaSuccess) return error;
  for (const auto& kernel : graph->kernels) Launch(stream, kernel);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  ++Fake().calls["cudaGraphExecDestroy"];
  return delete graph, cudaSuccess;
}

// ---------------------------------------------------------------------------------------- libraries

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return *handle = nullptr, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t,
                                        cudaDataType_t) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new PlayedDescription);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return delete Played(description), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size_bytes) {
  const auto* const bytes = static_cast<const char*>(value);
  Played(description)->attributes[attribute] = {bytes, bytes + size_bytes};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(
      new PlayedLayout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), stride});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return delete Played(layout), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return *made = nullptr, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  const bool refused =
      Played(description)->Get<int32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT) !=
          CUBLASLT_EPILOGUE_DEFAULT &&
      Fake().refuses_epilogues;
  if (refused || !IsSupported(*Played(description), *Played(a), *Played(b), *Played(d))) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  *found = std::min(wanted, static_cast<int>(Fake().product_ms.size()));
  for (int i = 0; i < *found; ++i) results[i].algo.data[0] = i;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void*, size_t,
                              cudaStream_t stream) {
  const int number = static_cast<int>(algorithm->data[0]);
  const float ms = Fake().product_ms[number];
  if (ms < 0.0f) return CUBLAS_STATUS_NOT_SUPPORTED;
  Fake().products.push_back(number);
  const PlayedOperands operands = {*static_cast<const float*>(alpha),
                                   *static_cast<const float*>(beta),
                                   a,
                                   b,
                                   c,
                                   d,
                                   *Played(a_layout),
                                   *Played(b_layout),
                                   *Played(d_layout)};
  Launch(stream, [ms, operands, description = *Played(description)] {
    Fake().now_ms += ms;
    if (operands.a != nullptr) Multiply(description, operands);
  });
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusName(cublasStatus_t) { return "error"; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "as the test wants it"; }
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return *handle = nullptr, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnDestroy(cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "as the test wants it"; }
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t) {
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"

namespace penstock::cuda {

absl::StatusOr<std::unique_ptr<Sdpa>> Sdpa::Create(cudnnHandle_t, const AttentionShape&,
                                                   Repeatability) {
  return absl::UnimplementedError("a played GPU has no attention");
}

absl::StatusOr<std::unique_ptr<Convolution>> Convolution::Create(const PlanTarget&,
                                                                 const ConvolutionShape&) {
  return absl::UnimplementedError("a played GPU has no convolutions");
}

void Store(cudaStream_t stream, int64_t value, int64_t* to) {
  Launch(stream, [=] { *to = value; });
}

}  // namespace penstock::cuda
