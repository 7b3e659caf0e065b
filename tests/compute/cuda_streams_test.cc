// What the CUDA back-end does with streams, events and graphs, on a played run-time library: no GPU needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "compute/cuda/copies.h"
#include "compute/cuda/graphs.h"
#include "compute/cuda/ipc.h"
#include "compute/cuda/memory.h"
#include "compute/cuda/prefetch.h"
#include "compute/cuda/product.h"
#include "tests/compute/fake_cuda.h"
#include "tests/support/status_matchers.h"

namespace penstock::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CudaStreamsTest : public ::testing::Test {
 protected:
  CudaStreamsTest() {
    auto context = CudaContext::Create(0, Repeatability::kBitwise);
    EXPECT_THAT(context, IsOk());
    context_ = *std::move(context);
    copies_ = std::make_unique<Copies>(*context_);
    prefetch_ = std::make_unique<Prefetch>(*context_);
  }
  ~CudaStreamsTest() override { fake_cuda::Reset(); }

  static Tensor Holding(BufferPool& pool, float value, int64_t count = 1) {
    Tensor tensor = pool.AcquireTensor(DType::kF32, {count});
    std::fill_n(tensor.data<float>(), count, value);
    return tensor;
  }
  Tensor OnHost(float value, int64_t count = 1) {
    return Holding(context_->host_pool(), value, count);
  }
  Tensor OnDevice(float value, int64_t count = 1) {
    return Holding(context_->pool(), value, count);
  }

  std::unique_ptr<CudaContext> context_;
  std::unique_ptr<Copies> copies_;
  std::unique_ptr<Prefetch> prefetch_;
};

// ------------------------------------------------------------------------------------------- copies

TEST_F(CudaStreamsTest, StartToHost_CopiesWhatTheCallsBeforeLeave) {
  fake_cuda::Hold(true);
  const Tensor tensor = OnDevice(1.0f);
  fake_cuda::Launch(context_->stream(), [=] { *tensor.data<float>() = 2.0f; });
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Outgoing outgoing, copies_->StartToHost(tensor));
  fake_cuda::Run(context_->copy_out());
  EXPECT_THAT(copies_->tickets().Poll(outgoing.ticket), IsOkAndHolds(false));
  fake_cuda::RunAll();
  EXPECT_THAT(copies_->tickets().Poll(outgoing.ticket), IsOkAndHolds(true));
  EXPECT_EQ(*outgoing.host.data<float>(), 2.0f);
}

TEST_F(CudaStreamsTest, CallFails_TicketIsUsedAgain) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Outgoing first, copies_->StartToHost(OnDevice(1.0f)));
  EXPECT_THAT(copies_->tickets().Poll(first.ticket), IsOkAndHolds(true));
  for (const char* function : {"cudaEventRecord", "cudaStreamWaitEvent", "cudaMemcpyAsync"}) {
    fake_cuda::FailNext(function);
    EXPECT_FALSE(copies_->StartToHost(OnDevice(1.0f)).ok()) << function;
    fake_cuda::RunAll();
  }
  fake_cuda::FailNext("cudaEventRecord");
  EXPECT_FALSE(copies_->tickets().Record(context_->stream()).ok());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Outgoing last, copies_->StartToHost(OnDevice(1.0f)));
  EXPECT_EQ(last.ticket, first.ticket);
}

TEST_F(CudaStreamsTest, Poll_CallFails_UsesTheTicketUp) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const int64_t ticket,
                                copies_->tickets().Record(context_->stream()));
  fake_cuda::FailNext("cudaSetDevice");
  EXPECT_FALSE(copies_->tickets().Poll(ticket).ok());
  EXPECT_THAT(copies_->tickets().Record(context_->stream()), IsOkAndHolds(ticket));
}

TEST_F(CudaStreamsTest, ToDevice_BehindWeightsThatComeBack_DoesNotWaitForThem) {
  fake_cuda::Hold(true);
  const Tensor weights = OnHost(5.0f, 1000);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Incoming incoming, prefetch_->StartToDevice(weights));
  const Tensor message = OnHost(3.0f);
  // The first landing is made when the compute stream is idle.
  fake_cuda::Hold(false);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Tensor landed, copies_->ToDevice(message));
  fake_cuda::RunAll();
  landed = Tensor();
  fake_cuda::Hold(true);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Incoming more, prefetch_->StartToDevice(weights));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Tensor next, copies_->ToDevice(message));
  *next.data<float>() = 0.0f;
  fake_cuda::Run(context_->stream());
  fake_cuda::Run(context_->copy_in());  // and nothing of the weights' own stream
  EXPECT_EQ(*next.data<float>(), 3.0f);
  EXPECT_THAT(prefetch_->FinishToDevice(std::move(incoming)), IsOk());
  EXPECT_THAT(prefetch_->FinishToDevice(std::move(more)), IsOk());
}

TEST_F(CudaStreamsTest, ToDevice_OtherSizes_HaveLandingsOfTheirOwn) {
  const auto receive = [&](int64_t count) {
    const auto tensor = copies_->ToDevice(OnHost(1.0f, count));
    EXPECT_THAT(tensor, IsOk());
    EXPECT_EQ(tensor->buffer.size_bytes(), BufferPool::BlockBytes(count * 4));
    fake_cuda::RunAll();
  };
  receive(1000);  // a tied gradient
  receive(10);    // an activation, while the large landing is free
  const int64_t held = context_->pool().stats().bytes_held;
  for (int i = 0; i < 5; ++i) {
    receive(1000);
    receive(10);
  }
  EXPECT_EQ(context_->pool().stats().bytes_held, held);
}

// ------------------------------------------------------------------------------- memory and sharing

// Not what the device has: other processes, and this one's context, have some of it.
TEST_F(CudaStreamsTest, FreeMemory_IsWhatTheDeviceHasLeftAndThePoolHolds) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  fake_cuda::SetFreeMemory(40960 * kMiB);
  const auto context = CudaContext::Create(0, Repeatability::kBitwise);
  ASSERT_THAT(context, IsOk());
  const int64_t free_bytes = (*context)->free_bytes();
  EXPECT_GE(free_bytes, (40960 + 32) * kMiB) << "the pool's workspace for libraries is the job's";
  EXPECT_LT(free_bytes, (40960 + 33) * kMiB);
  EXPECT_EQ(ShareOfMemory(free_bytes, 1), free_bytes);
  EXPECT_EQ(ShareOfMemory(40960 * kMiB, 4), (40960 - 3 * 1024) * kMiB / 4);
  EXPECT_EQ(ShareOfMemory(1024 * kMiB, 3), 0);

  fake_cuda::FailNext("cudaMemGetInfo");
  EXPECT_FALSE(CudaContext::Create(0, Repeatability::kBitwise).ok());
}

TEST_F(CudaStreamsTest, CheckUsable_OnlyAnErrorThatStaysIsTheEndOfIt) {
  fake_cuda::FailNext("cudaMemcpyAsync", cudaErrorMemoryAllocation);
  EXPECT_FALSE(copies_->StartToHost(OnDevice(1.0f)).ok());
  fake_cuda::Hold(true);
  fake_cuda::Launch(context_->stream(), [] {});
  EXPECT_THAT(context_->CheckUsable(), IsOk());
  fake_cuda::Stick(cudaErrorIllegalAddress);
  EXPECT_THAT(context_->CheckUsable(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("cannot use GPU 0 any more")));
  fake_cuda::Stick(cudaSuccess);
}

TEST_F(CudaStreamsTest, MemoryIsOut_IdleBlocksAreFreedAfterTheDeviceHasLeftThem) {
  fake_cuda::Hold(true);
  float seen = 0.0f;
  {
    const Tensor idle = OnDevice(3.0f, /*count=*/1024);
    fake_cuda::Launch(context_->stream(), [&seen, idle = idle.data<float>()] { seen = *idle; });
  }
  const int freed = fake_cuda::Calls("cudaFree");
  fake_cuda::FailNext("cudaMalloc", cudaErrorMemoryAllocation);
  EXPECT_TRUE(context_->pool().Acquire(2048));
  EXPECT_EQ(fake_cuda::Calls("cudaFree"), freed + 1);
  EXPECT_EQ(seen, 3.0f);
  EXPECT_THAT(context_->Check("memory"), IsOk());
}

TEST_F(CudaStreamsTest, MemoryIsOut_ExportedBlocksStay) {
  IpcShare share(*context_, *copies_);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::shared_ptr<Exporter> exporter, share.MakeExporter());
  EXPECT_THAT(exporter->Describe(OnDevice(1.0f, /*count=*/1024)), IsOk());
  const int freed = fake_cuda::Calls("cudaFree");
  fake_cuda::FailNext("cudaMalloc", cudaErrorMemoryAllocation);
  EXPECT_FALSE(context_->pool().Acquire(2048));
  EXPECT_EQ(fake_cuda::Calls("cudaFree"), freed);
}

// The importer is another process: nothing orders its read after a copy that is still on its way.
TEST_F(CudaStreamsTest, Offer_ItsProbesAreOnTheDevice) {
  IpcShare share(*context_, *copies_);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::shared_ptr<Exporter> exporter, share.MakeExporter());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Importer> importer,
                                share.Import(exporter->offer()));
  const Tensor tensor = OnDevice(5.0f, /*count=*/3);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ShareBytes bytes, exporter->Describe(tensor));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Importer::Fetched fetched,
                                importer->Fetch(bytes, tensor.dtype, tensor.shape));
  fake_cuda::RunAll();
  EXPECT_EQ(fetched.tensor.data<float>()[2], 5.0f);
}

// ----------------------------------------------------------------------------------------- products

class CudaProductsTest : public CudaStreamsTest {
 protected:
  static constexpr ProductShape kShape = {.rows = 2, .columns = 3, .inner = 4};

  // The algorithm that a product of this shape takes.
  static int AlgorithmOf(CudaContext& context, const ProductShape& shape = kShape) {
    const auto product = MatrixProduct::Create(context, shape);
    EXPECT_THAT(product, IsOk());
    fake_cuda::TakeProducts();
    EXPECT_THAT(product->Run({}), IsOk());
    return fake_cuda::TakeProducts().back();
  }
  static std::unique_ptr<CudaContext> Fast() {
    return *CudaContext::Create(0, Repeatability::kFast);
  }
};

TEST_F(CudaProductsTest, Repeatable_TakesTheFirstAndTimesNothing) {
  fake_cuda::SetProductTimes({3.0f, 1.0f});
  const auto product = MatrixProduct::Create(*context_, kShape);
  ASSERT_THAT(product, IsOk());
  EXPECT_THAT(fake_cuda::TakeProducts(), IsEmpty());
  EXPECT_EQ(AlgorithmOf(*context_), 0);
}

TEST_F(CudaProductsTest, NotRepeatable_TakesTheFastestOfThoseThatRun) {
  const auto context = Fast();
  fake_cuda::SetProductTimes({3.0f, -1.0f, 1.0f, 2.0f});
  EXPECT_EQ(AlgorithmOf(*context), 2);
  EXPECT_THAT(context->Check("products"), IsOk());
}

TEST_F(CudaProductsTest, NotRepeatable_EachShapeIsTimedOnce) {
  const auto context = Fast();
  fake_cuda::SetProductTimes({3.0f, 1.0f});
  EXPECT_EQ(AlgorithmOf(*context), 1);
  fake_cuda::SetProductTimes({1.0f, 3.0f});
  EXPECT_EQ(AlgorithmOf(*context), 1);
  ProductShape other = kShape;
  other.adds = true;
  EXPECT_EQ(AlgorithmOf(*context, other), 0);
}

TEST_F(CudaProductsTest, NotRepeatable_NoMemoryOrNoTime_TakesTheFirst) {
  const auto context = Fast();
  fake_cuda::SetProductTimes({3.0f, 1.0f});
  fake_cuda::FailNext("cudaMalloc", cudaErrorMemoryAllocation);
  EXPECT_EQ(AlgorithmOf(*context), 0);
  fake_cuda::FailNext("cudaEventCreate");
  EXPECT_EQ(AlgorithmOf(*context), 0);
  EXPECT_THAT(context->Check("products"), IsOk());
  fake_cuda::SetProductTimes({-1.0f, -1.0f});
  EXPECT_THAT(MatrixProduct::Create(*context, kShape), IsOk());
}

// ------------------------------------------------------------------------------------------- graphs

class CudaGraphsTest : public CudaStreamsTest {
 protected:
  static PassGraphs::Key Key(uint64_t argument, int node = 0) {
    return {.pass = Pass::kForward, .node = node, .arguments = {argument}};
  }
  // A pass that writes down the sample that its kernel sees.
  absl::Status Pass(const PassGraphs::Key& key, int64_t sample) {
    graphs_.SetSample(sample);
    return graphs_.Run(key, [&] {
      ++queued_;
      const Dropout dropout(0.5, 1);
      const DeviceMask mask = context_->MaskOf(dropout, {.first_sample = sample});
      fake_cuda::Launch(context_->stream(), [this, mask] {
        seen_.push_back(mask.first_sample_at == nullptr ? mask.first_sample
                                                        : *mask.first_sample_at);
      });
      return during_();
    });
  }

  CudaPassGraphs graphs_{*context_};
  std::function<absl::Status()> during_ = [] { return absl::OkStatus(); };
  int queued_ = 0;
  std::vector<int64_t> seen_;
};

TEST_F(CudaGraphsTest, RepeatedPass_IsRecordedOnceAndReadsEachSample) {
  for (int64_t sample = 10; sample < 15; ++sample) EXPECT_THAT(Pass(Key(1), sample), IsOk());
  EXPECT_EQ(queued_, 2);  // call by call, then for the recording
  fake_cuda::RunAll();
  EXPECT_THAT(seen_, ElementsAre(10, 11, 12, 13, 14));
  const PassGraphs::Stats stats = graphs_.stats();
  EXPECT_EQ(stats.passes, 5);
  EXPECT_EQ(stats.replayed, 3);
  EXPECT_EQ(stats.recorded, 1);
  EXPECT_EQ(stats.kept, 1);
  EXPECT_THAT(stats.given_up, IsEmpty());
}

TEST_F(CudaGraphsTest, AnotherKey_IsAnotherPass) {
  for (int round = 0; round < 3; ++round) {
    EXPECT_THAT(Pass(Key(1), round), IsOk());
    EXPECT_THAT(Pass(Key(2), round), IsOk());
    EXPECT_THAT(Pass(Key(1, /*node=*/1), round), IsOk());
  }
  EXPECT_EQ(graphs_.stats().recorded, 3);
  EXPECT_EQ(graphs_.stats().replayed, 3);
}

TEST_F(CudaGraphsTest, MoreKeysThanAreKept_TheOldestMakesRoom) {
  for (int round = 0; round < 2; ++round) {
    for (uint64_t key = 0; key < PassGraphs::kKeptMax; ++key)
      EXPECT_THAT(Pass(Key(key), 0), IsOk());
  }
  EXPECT_EQ(graphs_.stats().kept, PassGraphs::kKeptMax);
  const int destroyed = fake_cuda::Calls("cudaGraphExecDestroy");
  EXPECT_THAT(Pass(Key(999), 0), IsOk());
  EXPECT_EQ(fake_cuda::Calls("cudaGraphExecDestroy"), destroyed + 1);
  EXPECT_EQ(graphs_.stats().kept, PassGraphs::kKeptMax - 1);
  const int64_t replayed = graphs_.stats().replayed;
  EXPECT_THAT(Pass(Key(1), 0), IsOk());
  EXPECT_EQ(graphs_.stats().replayed, replayed + 1);
  EXPECT_THAT(Pass(Key(0), 0), IsOk());  // which was the oldest
  EXPECT_EQ(graphs_.stats().replayed, replayed + 1);
}

TEST_F(CudaGraphsTest, ScratchMoved_NothingOldIsReplayed) {
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Pass(Key(1), i), IsOk());
  const Tensor keeps_the_place = OnDevice(0.0f, 1 << 10);
  ASSERT_THAT(context_->layer_scratch().Reserve(1 << 20), IsOk());
  EXPECT_EQ(queued_, 2);
  EXPECT_THAT(Pass(Key(1), 3), IsOk());
  EXPECT_EQ(queued_, 3);
  EXPECT_EQ(graphs_.stats().kept, 0);
  for (int i = 4; i < 6; ++i) EXPECT_THAT(Pass(Key(1), i), IsOk());
  EXPECT_EQ(graphs_.stats().kept, 1);
  ASSERT_THAT(context_->fp8_scratch().Reserve(1 << 20), IsOk());
  EXPECT_THAT(Pass(Key(1), 6), IsOk());
  EXPECT_EQ(graphs_.stats().kept, 0);
}

// What a capture cannot have in it: each ends it, and the pass runs all the same, once.
TEST_F(CudaGraphsTest, CaptureFails_PassesGoOnCallByCallAndStatsSayWhy) {
  for (const char* call : {"memory", "query", "begin", "instantiate"}) {
    CudaPassGraphs graphs(*context_);
    std::vector<int> ran;
    const auto pass = [&](int number) {
      graphs.SetSample(number);
      return graphs.Run(Key(1), [&, number] {
        fake_cuda::Launch(context_->stream(), [&ran, number] { ran.push_back(number); });
        if (call == std::string("memory")) (void)context_->pool().Acquire(1 << (20 + number));
        if (call == std::string("query")) (void)context_->WaitForStream("nothing");
        return context_->Check("a pass");
      });
    };
    EXPECT_THAT(pass(0), IsOk());
    if (call == std::string("begin")) fake_cuda::FailNext("cudaStreamBeginCapture");
    if (call == std::string("instantiate")) fake_cuda::FailNext("cudaGraphInstantiate");
    for (int number = 1; number < 4; ++number) EXPECT_THAT(pass(number), IsOk());
    fake_cuda::RunAll();
    EXPECT_THAT(ran, ElementsAre(0, 1, 2, 3)) << call;
    EXPECT_THAT(graphs.stats().given_up, HasSubstr("captur")) << call;
    EXPECT_EQ(graphs.stats().kept, 0);
    EXPECT_THAT(context_->Check("afterwards"), IsOk()) << call;
  }
}

TEST_F(CudaGraphsTest, PassItselfFails_ItsErrorIsReturned) {
  EXPECT_THAT(Pass(Key(1), 0), IsOk());
  during_ = [] { return absl::InternalError("no such kernel"); };
  EXPECT_THAT(Pass(Key(1), 1), StatusIs(absl::StatusCode::kInternal, HasSubstr("no such kernel")));
}

TEST_F(CudaGraphsTest, ErrorOfAnEarlierCall_IsReturnedAndNothingIsGivenUp) {
  EXPECT_THAT(Pass(Key(1), 0), IsOk());
  context_->Note(absl::InternalError("illegal address"));
  EXPECT_THAT(Pass(Key(1), 1), StatusIs(absl::StatusCode::kInternal, HasSubstr("illegal address")));
  EXPECT_THAT(graphs_.stats().given_up, IsEmpty());
}

TEST_F(CudaGraphsTest, ReplayFails_ItsErrorIsReturned) {
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Pass(Key(1), i), IsOk());
  fake_cuda::FailNext("cudaGraphLaunch");
  EXPECT_THAT(Pass(Key(1), 3), StatusIs(absl::StatusCode::kInternal, HasSubstr("replaying")));
}

}  // namespace
}  // namespace penstock::cuda
